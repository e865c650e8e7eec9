"""Answers that are not what they should be: refused, named, counted; the model never sees them."""

import json

import jax
import numpy as np
import pytest
from federations import federation, gaussian, members, simulated, transport

import performative as pf
from performative.live import read_events, serve
from performative.live.screen import Refused, Screen
from performative.live.wire import decode, digest, encode

BAD = 4  # this client's answers are spoilt; the others are honest


def change(**arrays):
    """Replace arrays of an answer; None takes one out."""

    def spoil(reply):
        about, found = decode(reply)
        found |= arrays
        return encode(about, {name: value for name, value in found.items() if value is not None})

    return spoil


def tell(**facts):
    """Replace what an answer says about itself."""
    return lambda reply: encode(decode(reply)[0] | facts, decode(reply)[1])


def scaled(factor):
    def spoil(reply):
        about, found = decode(reply)
        return encode(about, found | {"upload.delta": found["upload.delta"] * factor})

    return spoil


def shaped(reply, shape):
    """An answer whose head gives the update another shape."""
    length = int.from_bytes(reply[4:8], "little")
    head = json.loads(reply[8 : 8 + length])
    head["arrays"] = [[name, kind, shape if name == "upload.delta" else was] for name, kind, was in head["arrays"]]
    text = json.dumps(head).encode()
    return reply[:4] + len(text).to_bytes(4, "little") + text + reply[8 + length :]


SPOILT = {
    "NaN": (change(**{"upload.delta": np.full(3, np.nan)}), "non-finite"),
    "infinity": (change(**{"upload.delta": np.array([0, np.inf, 0])}), "non-finite"),
    "wrong shape": (change(**{"upload.delta": np.ones(4)}), "must have shape"),
    "(1,) that would be broadcast": (change(**{"upload.delta": np.ones(1)}), "must have shape"),
    "a row too many": (change(**{"upload.delta": np.ones((1, 3))}), "must have shape"),
    "wrong type": (change(**{"upload.delta": np.ones(3, np.float32)}), "must have dtype float64"),
    "whole numbers": (change(**{"upload.delta": np.ones(3, np.int64)}), "must have dtype float64"),
    "wrong key": (change(**{"upload.delta": None, "upload.Delta": np.ones(3)}), "is missing"),
    "one key too many": (change(**{"upload.weight": np.asarray(1e12)}), "is unknown"),
    "a key of nobody's": (change(weight=np.asarray(1e12)), "is unknown"),
    "far too long": (scaled(1e12), "the limit is"),
    "1e300": (change(**{"upload.delta": np.full(3, 1e300)}), "the limit is"),
    "more steps": (change(**{"upload.steps": np.asarray(1000, np.int32)}), "local steps were done"),
    "no steps": (change(**{"upload.steps": np.asarray(0, np.int32)}), "local steps were done"),
    "negative count": (change(**{"upload.metrics['samples']": np.asarray(-5, np.int32)}), "negative"),
    "somebody else's number": (tell(client=0), "another request"),
    "another request": (tell(request="0" * 32), "another request"),
    "a later round": (tell(round=10**6), "another request"),
    "a round that is text": (tell(round="0"), "another request"),
    "no bytes": (lambda reply: b"", "not a message"),
    "a pickle": (lambda reply: b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00", "not a message"),
    "half of it": (lambda reply: reply[: len(reply) // 2], "longer than the message"),
    "65 axes": (lambda reply: shaped(reply, [1] * 65), "head cannot be read"),
    "70 empty axes": (lambda reply: shaped(reply, [0] * 70), "head cannot be read"),
    "an empty axis that hides others": (lambda reply: shaped(reply, [0, 2**39, 2**39]), "head cannot be read"),
    "something after it": (lambda reply: reply + b"\0", "left over"),
    "too large": (lambda reply: reply + b"\0" * 10**6, "the limit is"),
}


@pytest.fixture(scope="module")
def honest_reply(tmp_path_factory):
    """One honest answer, with the screen that it passes and what is expected of it."""
    made = federation(rounds=1)
    seen = {}

    def spy(client, answer):
        def listen(request):
            seen[client] = request, answer(request)
            return seen[client][1]

        return listen

    folder = tmp_path_factory.mktemp("honest")
    serve(made, transport(made, folder, spy), folder / "server")
    request, reply = seen[BAD]
    expected = {name: decode(request)[0][name] for name in ("run", "round")}
    expected |= {"request": digest(request), "steps": 2}
    with made.precision():
        return Screen(made.ready.upload_like, 1e6), reply, expected


def test_an_honest_answer_passes(honest_reply):
    screen, reply, expected = honest_reply
    upload, about = screen.read(reply, BAD, expected)
    assert about["client"] == BAD
    assert upload.delta.shape == (3,)


@pytest.mark.parametrize("name", SPOILT)
def test_each_is_refused_by_the_screen(name, honest_reply):
    screen, reply, expected = honest_reply
    spoil, words = SPOILT[name]
    with pytest.raises(Refused, match=words):
        screen.read(spoil(reply), BAD, expected)


def generate(rng, reply):
    """A spoilt answer: bytes flipped, cut, added, arrays swapped, shapes, types, numbers and facts changed."""
    about, arrays = decode(reply)
    names = list(arrays)
    kind = rng.integers(8)
    if kind == 0:
        broken = bytearray(reply)
        for place in rng.integers(len(broken), size=rng.integers(1, 9)):
            broken[place] ^= int(rng.integers(1, 256))
        return bytes(broken)
    if kind == 1:
        return reply[: rng.integers(len(reply))]
    if kind == 2:
        return reply + rng.bytes(rng.integers(1, 50))
    if kind == 3:
        return rng.bytes(rng.integers(0, 400))
    if kind == 4:
        name = names[rng.integers(len(names))]
        shape = tuple(rng.integers(0, 4, size=rng.integers(0, 4)))
        return encode(about, arrays | {name: np.ones(shape, rng.choice(["f4", "f8", "i4", "i8", "u1", "?"]))})
    if kind == 5:
        arrays.pop(names[rng.integers(len(names))])
        return encode(about, arrays)
    if kind == 6:
        worst = rng.choice([np.nan, np.inf, -np.inf, 1e300, -1e300, 1e150, 1e12])
        delta = arrays["upload.delta"].copy()
        delta[rng.integers(3)] = worst
        return encode(about, arrays | {"upload.delta": delta})
    name = rng.choice(["run", "round", "client", "request"])
    return encode(about | {str(name): rng.choice([None, "x", 10**6])}, arrays)


def harmless(reply, spoilt):
    """Whether a changed answer says the same update: a flipped bit may fall into what nobody reads, or into the
    mantissa of a number, and then it is an update like any other."""
    try:
        decode(spoilt)
    except ValueError:
        return False
    return True


def test_generated_answers_are_refused_or_sound(honest_reply, survived):
    screen, reply, expected = honest_reply
    rng, refused = np.random.default_rng(0), 0
    for _ in range(2000):
        spoilt = generate(rng, reply)
        with survived("a spoilt answer, at the server's door"):
            try:
                upload, _ = screen.read(spoilt, BAD, expected)
            except Refused:
                refused += 1
                continue
            assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(upload))
            assert float(np.linalg.norm(upload.delta)) <= 1e6
            assert harmless(reply, spoilt)
    assert refused > 1800


def without_the_bad(made):
    """The same federation of the honest clients alone, their weights made to sum to one."""
    weights = np.asarray(made.problem.client_weights)[:BAD]
    population = jax.tree.map(lambda leaf: leaf[:BAD] if np.ndim(leaf) else leaf, made.problem.population)
    return federation(
        pf.Problem(loss=pf.losses.squared, population=population, weights=weights / weights.sum()),
        made.algorithm,
        rounds=made.rounds,
    )


@pytest.mark.parametrize("name", ["NaN", "(1,) that would be broadcast", "one key too many", "half of it"])
def test_the_result_is_that_of_the_others(name, tmp_path):
    made = federation(gaussian(weights=np.arange(1, 6) / 15), rounds=4)
    spoil = SPOILT[name][0]

    def wrap(client, answer):
        return (lambda request: spoil(answer(request))) if client == BAD else answer

    live = serve(made, transport(made, tmp_path, wrap), tmp_path / "server")
    assert live.status == "completed"
    assert live["rejected"][0, -1] == 4
    np.testing.assert_allclose(live.theta, simulated(without_the_bad(made)).theta, rtol=0, atol=1e-12)
    told = [event for event in read_events(tmp_path / "server") if event["what"] == "rejected"]
    assert [(event["client"], event["round"]) for event in told] == [(BAD, r) for r in range(4)]
    assert all(event["reason"] for event in told)


@pytest.mark.parametrize(("norm", "refused"), [(None, 4), (1e6, 0)])
def test_a_liar_whose_update_is_out_of_line_is_left_out_by_default(norm, refused, tmp_path):
    """A hundred thousand long where others send ones: within the limit in absolute terms, and all that a mean sees."""
    made = federation(gaussian(weights=np.arange(1, 6) / 15), rounds=4, norm=norm)

    def wrap(client, answer):
        def lie(request):
            about, arrays = decode(answer(request))
            return encode(about, arrays | {"upload.delta": 1e5 * np.ones_like(arrays["upload.delta"])})

        return lie if client == BAD else answer

    live = serve(made, transport(made, tmp_path, wrap), tmp_path / "server")
    assert live["rejected"][0, -1] == refused
    if refused:
        np.testing.assert_allclose(live.theta, simulated(without_the_bad(made)).theta, rtol=0, atol=1e-12)
        reasons = [event["reason"] for event in read_events(tmp_path / "server")]
        assert all("times the median of this round" in reason for reason in reasons)
    else:
        assert np.abs(live.theta[0, -1]).max() > 1e4


@pytest.mark.slow
def test_two_thousand_generated_answers_leave_no_trace(tmp_path):
    """500 rounds in each of which four clients of eight send something spoilt."""
    problem = gaussian(8)
    made = federation(problem, rounds=500)
    rng = np.random.default_rng(1)

    def wrap(client, answer):
        def spoilt(request):
            reply = answer(request)
            while True:
                bad = generate(rng, reply)
                try:
                    about, arrays = decode(bad)
                except ValueError:
                    return bad
                # A change of the last bits of a number is an update like any other: not what is meant here.
                kept = decode(reply)[1]
                if about == decode(reply)[0] and arrays.keys() == kept.keys():
                    same = all(arrays[n].shape == kept[n].shape and arrays[n].dtype == kept[n].dtype for n in kept)
                    if same and np.abs(arrays["upload.delta"]).max() < 1e9:
                        continue
                return bad

        return spoilt if client >= 4 else answer

    live = serve(made, transport(made, tmp_path, wrap), tmp_path / "server")
    assert live.status == "completed"
    assert live["rejected"][0, -1] == 2000
    population = jax.tree.map(lambda leaf: leaf[:4] if np.ndim(leaf) else leaf, problem.population)
    four = federation(pf.Problem(loss=pf.losses.squared, population=population), rounds=500)
    np.testing.assert_allclose(live.theta, simulated(four).theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("recipe", [pf.p_fedavg, pf.fedvarp])
def test_when_nobody_is_believed_the_model_stays(recipe, tmp_path):
    made = federation(algorithm=recipe(rate=0.1, deploy="round"), rounds=3)
    carrier = transport(made, tmp_path, lambda client, answer: lambda request: b"")
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        live = serve(made, carrier, tmp_path / "server")
    assert live.status == "failed"
    assert np.all(live.theta == live.theta[:, :1])
    assert [event["what"] for event in read_events(tmp_path / "server")].count("quorum") == 3


def test_a_quorum_that_is_not_met(tmp_path):
    made = federation(rounds=2, quorum=5)
    spoil = SPOILT["NaN"][0]

    def wrap(client, answer):
        return (lambda request: spoil(answer(request))) if client == BAD else answer

    with pytest.warns(UserWarning, match="nothing-was-learned"):
        live = serve(made, transport(made, tmp_path, wrap), tmp_path / "server")
    assert np.all(live.theta == live.theta[:, :1])
    assert "unbiased only if" in live.meta["notes"][0]
    # Honest clients were told that their answers were not used: their memories did not move.
    with made.precision():
        last = members(made, tmp_path)[0].store.load(made.ready.memory_like)
    assert (last.round, last.accepted) == (1, -1)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["sign flip", "1e300", "NaN"])
@pytest.mark.parametrize(
    "rule", [pf.aggregators.TrimmedMean(0.25), pf.aggregators.Median(), pf.aggregators.Krum(byzantine=3)], ids=str
)
def test_byzantine_clients_under_robust_rules(rule, attack, tmp_path):
    """3 of 13 clients attack; the error is at most twice that of the same rule without them."""
    spoil = {"sign flip": scaled(-1.0), "1e300": SPOILT["1e300"][0], "NaN": SPOILT["NaN"][0]}[attack]
    population = pf.populations.Gaussian(mean=np.ones((13, 3)), sensitivity=np.full(13, 0.4), scale=1.0)
    problem = pf.Problem(loss=pf.losses.squared, population=population)
    algorithm = pf.p_fedavg(rate=0.1, local_steps=2, batch=pf.Fixed(8), aggregator=rule, deploy="round")
    target = np.asarray(pf.stable_point(problem))

    def wrap(client, answer):
        return (lambda request: spoil(answer(request))) if client >= 10 else answer

    def error(name, spoilt):
        made = federation(problem, algorithm, rounds=150)
        live = serve(made, transport(made, tmp_path / name, wrap if spoilt else None), tmp_path / name / "server")
        # The last rounds, where only the noise of batches is left: flipped signs slow the way there too.
        return np.sqrt(np.mean(np.sum((live.theta[0, 100:] - target) ** 2, axis=-1)))

    clean, attacked = error("clean", False), error("attacked", True)
    print(f"{rule} {attack}: {clean:.4f} without, {attacked:.4f} with")
    assert attacked <= 2 * clean


def test_momentum_waits_for_a_quorum(tmp_path):
    """What the server remembers does not move the model while nobody is heard."""
    rule = pf.aggregators.ServerOpt(pf.aggregators.Mean(), pf.optimizers.Momentum(0.9))
    made = federation(algorithm=pf.p_fedavg(rate=0.1, aggregator=rule, deploy="round"), rounds=2)
    silent = set()

    def wrap(client, answer):
        return lambda request: b"" if silent else answer(request)

    carrier = transport(made, tmp_path, wrap)
    serve(made, carrier, tmp_path / "server")
    silent.add(True)
    live = serve(made, carrier, tmp_path / "server", resume=True, rounds=4)
    assert np.array_equal(live.theta[0, 2], live.theta[0, 4])
    assert not np.array_equal(live.theta[0, 1], live.theta[0, 2])


def test_a_client_that_forgot_its_control_is_left_out(tmp_path):
    """SCAFFOLD's server still counts the control that the client lost; a new one on top would bias it for good."""
    made = federation(algorithm=pf.scaffold(rate=0.1, deploy="round"), rounds=2)
    carrier = transport(made, tmp_path)
    serve(made, carrier, tmp_path / "server")
    (tmp_path / "clients" / "1" / "memory.bin").unlink()
    serve(made, carrier, tmp_path / "server", resume=True, rounds=3)
    (event,) = read_events(tmp_path / "server")
    assert (event["what"], event["client"]) == ("rejected", 1)
    assert "lost its memory" in event["reason"]


def test_events_are_lines_of_json(tmp_path):
    made = federation(rounds=1)

    def wrap(client, answer):
        return (lambda request: b"junk") if client == 0 else answer

    serve(made, transport(made, tmp_path, wrap), tmp_path / "server")
    (line,) = (tmp_path / "server" / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["client"] == 0
