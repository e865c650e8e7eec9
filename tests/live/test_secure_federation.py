"""A federation whose server sees sums only: the same model to the step of the integers, whoever drops out or lies."""

import json
from fractions import Fraction

import numpy as np
import pytest
from federations import Killed, OneThread, federation, gaussian, members, transport

import performative as pf
from performative.live import Secure, read_events, rehearse, serve
from performative.live.secure.assembly import Assembly
from performative.live.secure.participant import STEPS, Participant
from performative.live.secure.roster import provision
from performative.live.wire import decode, digest, encode

STEP = 2.0**-32
UNEQUAL = np.arange(1, 6) / 15
WORK = pf.participation.LocalWork(pf.SchemeTwo(4), [1, 2, 3, 2, 1])
EIGHTH = {"rate": 0.1, "batch": pf.Fixed(4), "deploy": "round"}
ALGORITHMS = {
    "mean": pf.p_fedavg(**EIGHTH, local_steps=2, participation=pf.SchemeTwo(4)),
    "drawn twice": pf.p_fedavg(**EIGHTH, participation=pf.SchemeOne(5)),
    "nova": pf.fednova(**EIGHTH, participation=WORK),
    "server momentum": pf.fedavgm(**EIGHTH),
}
# Scheme I may draw few different clients: the threshold is that of five rows.
OPTIONS = {"drawn twice": {"secure": Secure(threshold=3), "seed": 2}}
LONG = ("drawn twice", "server momentum", "nova")


def clients(made, folder, wrap=None):
    """Clients in threads that know each other's keys."""
    provision({i: folder / "clients" / str(i) for i in range(made.clients)})
    return transport(made, folder, wrap)


def run(made, folder, wrap=None):
    carrier = clients(made, folder, wrap)
    try:
        return serve(made, carrier, folder / "server")
    finally:
        carrier.close()


def failing_at(step, *who, rounds=range(99)):
    """These clients are gone when a step of these rounds is asked for."""

    def wrap(client, answer):
        def listen(request):
            about = decode(request)[0]
            if client in who and about["step"] == step and about["round"] in rounds:
                raise RuntimeError("no power")
            return answer(request)

        return listen

    return wrap


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in ALGORITHMS])
def test_the_model_is_that_of_the_plain_run(name, tmp_path, monkeypatch):
    """To the bit that of the same integers without masks; to the step of the integers that of the float run."""
    options = {"secure": True, "rounds": 3} | OPTIONS.get(name, {})
    made = federation(gaussian(weights=UNEQUAL), ALGORITHMS[name], **options)
    secure = rehearse(made, tmp_path / "secure")
    floats = rehearse(federation(gaussian(weights=UNEQUAL), ALGORITHMS[name], **options | {"secure": False}))
    monkeypatch.setattr(Participant, "mask", lambda self, sealed, values: _bare(self, sealed, values))
    monkeypatch.setattr(Assembly, "unmask", lambda self, revealed: self._total)
    unmasked = rehearse(made, tmp_path / "bare")
    assert np.array_equal(secure.theta, unmasked.theta)
    assert not np.array_equal(secure.theta[0, 0], secure.theta[0, -1])
    # A round is off by at most half a step (Nova multiplies it by how far steps reach, below 1, and the sums of float64
    # arithmetic are off by 1e-16); rounds shrink what came before, but for momentum, which at most doubles it.
    apart = np.abs(secure.theta - floats.theta)[0]
    assert apart[1].max() <= 0.5 * STEP + 1e-14
    assert apart.max() <= 3 * 0.5 * STEP * (2 if name == "server momentum" else 1) + 1e-14


def _bare(person, sealed, values):
    """The step without masks; the rest of the protocol goes on."""
    person._step("masked")
    person.sealed = dict(sealed)
    return values.copy()


def test_the_sum_by_hand(tmp_path):
    """theta_1 - theta_0 = (h / K) sum_u round(p_u delta_u K / h), in Python's own integers and fractions."""
    made = federation(gaussian(weights=UNEQUAL), rounds=1, secure=True)
    live = rehearse(made, tmp_path)
    whole = np.zeros(3, object)
    for i in range(5):
        _, arrays = decode((tmp_path / "clients" / str(i) / "secure.bin").read_bytes())
        delta = decode(arrays["trained"].tobytes())[1]["upload.delta"]
        weight = float(UNEQUAL[i] / UNEQUAL.sum())
        exact = [Fraction(float(entry)) * Fraction(weight) * 5 / Fraction(STEP) for entry in delta]
        rounded = np.asarray([round(entry) for entry in exact], object)
        # The client multiplies in float64: near a tie it may take the other neighbour.
        assert all(abs(float(a - b)) <= 0.5 + 1e-4 for a, b in zip(exact, rounded, strict=True))
        whole += rounded
    by_hand = np.asarray([float(entry) for entry in whole]) * (STEP / 5)
    assert np.abs(live.theta[0, 1] - live.theta[0, 0] - by_hand).max() <= 5 * STEP / 5
    units = (live.theta[0, 1] - live.theta[0, 0]) * 5 / STEP
    assert np.abs(units - np.rint(units)).max() < 1e-3  # whole numbers of the grid


@pytest.mark.parametrize("step", [STEPS[0], *(pytest.param(step, marks=pytest.mark.slow) for step in STEPS[1:])])
def test_dropouts_are_recovered(step, tmp_path):
    """Who is gone before its vector came is left out of the sum; who goes later is in it all the same."""
    made = federation(gaussian(weights=UNEQUAL), rounds=2, secure=True)
    live = run(made, tmp_path / "secure", failing_at(step, 3, rounds=[0]))
    gone = {} if STEPS.index(step) > 2 else {"wrap": _silent(3, 0)}
    plain = federation(gaussian(weights=UNEQUAL), rounds=2)
    floats = serve(plain, transport(plain, tmp_path / "plain", **gone), tmp_path / "plain" / "server")
    assert np.abs(live.theta - floats.theta).max() <= 2 * STEP
    (event,) = read_events(tmp_path / "secure" / "server")
    assert (event["what"], event["client"]) == ("failed", 3)
    assert event["reason"].startswith(f"step {step}: RuntimeError")


def _silent(who, round):
    def wrap(client, answer):
        def listen(request):
            if client == who and decode(request)[0]["round"] == round:
                raise RuntimeError("no power")
            return answer(request)

        return listen

    return wrap


@pytest.mark.parametrize("step", [STEPS[0], STEPS[2], STEPS[4]])
def test_too_many_dropouts_refuse_the_round(step, tmp_path):
    """Four of five are the threshold: with three the model stays, and the next round is sound."""
    made = federation(rounds=2, secure=True)
    live = run(made, tmp_path, failing_at(step, 2, 3, rounds=[0]))
    assert np.array_equal(live.theta[0, 0], live.theta[0, 1])
    assert not np.array_equal(live.theta[0, 1], live.theta[0, 2])
    reasons = [event["reason"] for event in read_events(tmp_path / "server") if event["what"] == "sum refused"]
    assert len(reasons) == 1
    assert "of 3 clients, and the sum of fewer than 4 is never revealed" in reasons[0]


def altering(change):
    """A server that changes what it asks: change(client, step, about) returns what it says instead."""

    def wrap(client, answer):
        def listen(request):
            about, arrays = decode(request)
            return answer(encode(change(client, about["step"], dict(about)), arrays))

        return listen

    return wrap


def test_a_server_that_lies_about_who_dropped_out(tmp_path):
    """It tells two of five that client 4 is gone, in order to get a share of its key from them and of its seed from
    the others. Nobody reveals anything."""
    told = []

    def change(client, step, about):
        if step == "consent" and client in (0, 1):
            about["survivors"] = [0, 1, 2, 3]
        told.append((client, step))
        return about

    made = federation(rounds=1, secure=True)
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        live = run(made, tmp_path, altering(change))
    assert np.array_equal(live.theta[0, 0], live.theta[0, 1])
    # The signatures of 0 and 1 are for another set; their requests were altered, so that even their answers do not fit.
    said = [event.get("reason", "") for event in read_events(tmp_path / "server")]
    assert any("answers another request" in reason or "has not signed the survivors" in reason for reason in said)
    for i in range(5):
        about, arrays = decode((tmp_path / "clients" / str(i) / "secure.bin").read_bytes())
        assert "reveal" not in about["marks"] and "reply reveal" not in arrays


def test_a_member_that_was_told_other_survivors_reveals_nothing(tmp_path):
    """The same with a server that makes no mistake: every client is asked by hand."""
    made = federation(rounds=1, secure=True)
    seen: dict = {}

    def spy(client, answer):
        def listen(request):
            seen[client, decode(request)[0]["step"]] = request
            if decode(request)[0]["step"] == "consent":
                raise RuntimeError("the test goes on by hand")
            return answer(request)

        return listen

    with pytest.warns(UserWarning, match="nothing-was-learned"):
        run(made, tmp_path, spy)
    people = members(made, tmp_path)

    def ask(client, step, **more):
        about, _ = decode(seen[client, "consent"])
        reply = people[client].answer(encode(about | {"step": step} | more, {}))
        return decode(reply)[0]

    signed = {i: ask(i, "consent", survivors=[0, 1, 2, 3, 4])["signature"] for i in range(4)}
    lie = ask(4, "consent", survivors=[0, 1, 2, 4])["signature"]
    with pytest.raises(ValueError, match=r"client 4 has not signed the survivors .* different lists to different"):
        ask(0, "reveal", signatures={str(i): s for i, s in (signed | {4: lie}).items()})
    with pytest.raises(ValueError, match="client 0 has not signed the survivors"):
        ask(4, "reveal", signatures={"0": signed[0], "1": signed[1], "2": signed[2], "4": lie})
    with pytest.raises(ValueError, match="the step 'consent' of round 0 was already answered, for another request"):
        ask(4, "consent", survivors=[0, 1, 2, 3, 4])
    # The honest four are enough by themselves, and are answered once.
    shares = ask(0, "reveal", signatures={str(i): s for i, s in signed.items()})["shares"]
    assert set(shares) == {"0", "1", "2", "3", "4"}
    fewer = {str(i): signed[i] for i in (0, 1, 2)}
    with pytest.raises(ValueError, match="already answered, for another request"):
        ask(0, "reveal", signatures=fewer)
    with pytest.raises(ValueError, match="received signatures of 3 clients"):
        ask(1, "reveal", signatures=fewer)


@pytest.mark.parametrize("step", ["shares", "masked"])
def test_messages_of_an_earlier_round_are_refused(step, tmp_path):
    """The server puts what client 1 sent in the first round into the second."""
    kept: dict = {}
    name = {"shares": "keys", "masked": "shares"}[step]

    def change(client, now, about):
        if now == step and client == 0:
            if about["round"] == 0:
                kept["old"] = about[name]
            else:
                about[name] = _with_old(about[name], kept["old"])
        return about

    made = federation(rounds=2, secure=True)
    live = run(made, tmp_path, altering(change))
    (event,) = [event for event in read_events(tmp_path / "server") if event["client"] == 0]
    assert event["round"] == 1
    words = {
        "shares": "keys of client 1 are not signed by it for this round",
        "masked": "client 1 were altered, or belong to",
    }
    assert words[step] in event["reason"]
    assert live.status == "completed"


def _with_old(now, old):
    if isinstance(now, dict):
        return now | {"1": old["1"]}
    return [before if before[0] == 1 else entry for before, entry in zip(old, now, strict=True)]


def test_the_server_never_sees_an_update(tmp_path):
    """What leaves a client: keys, sealed shares, one masked vector, a signature, shares. No upload, no counts."""
    sent = []

    def spy(client, answer):
        def listen(request):
            reply = answer(request)
            sent.append((client, *decode(reply)))
            return reply

        return listen

    run(federation(rounds=1, secure=True), tmp_path, spy)
    assert len(sent) == 25
    head = {"run", "round", "client", "request", "step"}
    more = {"keys": {"keys", "lost_memory", "seconds"}, "shares": {"shares"}, "masked": set(),
            "consent": {"signature"}, "reveal": {"shares"}}  # fmt: skip
    for client, about, arrays in sent:
        assert about.keys() == head | more[about["step"]]
        assert arrays.keys() == ({"masked"} if about["step"] == "masked" else set())
        if about["step"] == "masked":
            mine = decode((tmp_path / "clients" / str(client) / "secure.bin").read_bytes())[1]
            delta = decode(mine["trained"].tobytes())[1]["upload.delta"]
            plain = np.rint(delta * 0.2 * 5 / STEP).astype(np.int64).view(np.uint64)
            assert not np.any(arrays["masked"][:3] == plain)
    for name in ("secure.bin", "identity.key", "memory.bin", "roster.json"):
        assert (tmp_path / "clients" / "0" / name).stat().st_mode & 0o77 == 0


def test_a_server_that_sends_one_client_another_model(tmp_path):
    """Its update could then be told from the others' in the sum: nobody accepts its keys, nor it theirs."""

    def other(client, answer):
        def listen(request):
            about, arrays = decode(request)
            if client == 2 and about["step"] == "keys":
                arrays = {
                    name: array + 1 if name.startswith("broadcast.theta") else array for name, array in arrays.items()
                }
                # A lying server would take the answer for one to its own request.
                reply, more = decode(answer(encode(about, arrays)))
                return encode(reply | {"request": digest(request)}, more)
            return answer(request)

        return listen

    made = federation(rounds=1, secure=True)
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        live = run(made, tmp_path, other)
    assert "keys of client" in live.meta["failed"] and "are not signed by it for this round" in live.meta["failed"]
    for i in range(5):
        assert set(decode((tmp_path / "clients" / str(i) / "secure.bin").read_bytes())[0]["marks"]) == {"keys"}


@pytest.mark.parametrize("lie", [{"steps": 0}, {"version": 7}])
def test_a_server_that_asks_one_client_alone_for_work(lie, tmp_path):
    """All others do no step, or look at rows of another version: the sum would be the update of client 2."""

    def idle(client, answer):
        def listen(request):
            about, arrays = decode(request)
            if client == 2 or about["step"] != "keys":
                return answer(request)
            reply, more = decode(answer(encode(about | lie, arrays)))
            return encode(reply | {"request": digest(request)}, more)

        return listen

    made = federation(rounds=1, secure=True)
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        live = run(made, tmp_path, idle)
    says = {"steps": "sets the number of local steps", "version": "are not signed by it for this round"}
    assert says[next(iter(lie))] in live.meta["failed"]
    assert np.array_equal(live.theta[0, 0], live.theta[0, 1])


def test_a_client_with_a_weak_key_stops_nobody_else(tmp_path):
    def weaken(client, answer):
        def listen(request):
            about, arrays = decode(answer(request))
            if client == 1 and about["step"] == "keys":
                about["keys"][2] = "A" * 43 + "="
            return encode(about, arrays)

        return listen

    live = run(federation(rounds=1, secure=True), tmp_path, weaken)
    assert live.status == "completed" and not np.array_equal(live.theta[0, 0], live.theta[0, 1])
    (event,) = read_events(tmp_path / "server")
    assert (event["client"], event["reason"]) == (1, "step keys: its keys are not valid keys")


def test_a_server_that_dies_goes_on_with_the_same_bits(tmp_path):
    """Killed in the middle of a session and resumed: clients answer the same requests with the same bytes."""
    made = federation(rounds=3, secure=True)
    whole = rehearse(made, tmp_path / "whole")

    class Dying(OneThread):
        def send(self, requests, seconds):
            about = decode(next(iter(requests.values())))[0]
            if (about["round"], about["step"]) == (1, "reveal"):
                raise Killed
            super().send(requests, seconds)

    folder = tmp_path / "cut"
    provision({i: folder / "clients" / str(i) for i in range(5)})
    with pytest.raises(Killed):
        serve(made, Dying(made, folder), folder / "server")
    live = serve(made, OneThread(made, folder), folder / "server", resume=True)
    assert np.array_equal(live.theta, whole.theta)


def test_a_client_without_a_roster_takes_no_part(tmp_path):
    made = federation(rounds=1, secure=True)
    carrier = transport(made, tmp_path)
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        live = serve(made, carrier, tmp_path / "server")
    carrier.close()
    assert "no roster.json" in live.meta["failed"]


def test_a_plain_request_is_refused(tmp_path):
    """A server that would like to see updates after all has other settings, and a member says so."""
    made = federation(rounds=1, secure=True)
    provision({i: tmp_path / "clients" / str(i) for i in range(5)})
    plain = federation(rounds=1)
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        live = serve(plain, transport(made, tmp_path), tmp_path / "server")
    assert "the server's problem, algorithm" in live.meta["failed"]


def test_noise_of_a_secure_round_is_filled_up(tmp_path):
    """20 clients, two of them gone: the mean keeps the noise that was promised to the world, sigma c / 18."""
    population = pf.populations.Gaussian(mean=np.zeros((20, 400)), sensitivity=np.zeros(20), scale=1e-9)
    problem = pf.Problem(loss=pf.losses.squared, population=population)
    channel = pf.channels.ClippedNoise(clip=2.0, noise_multiplier=3.0)
    privacy = pf.Privacy(delta=1e-3, unit="client")
    algorithm = pf.p_fedavg(rate=1e-6, channel=channel, deploy="round")
    made = federation(problem, algorithm, rounds=1, privacy=privacy, secure=True)
    live = run(made, tmp_path, failing_at("masked", 3, 11))
    moved = live.theta[0, 1]
    # 400 coordinates: the standard error of a standard deviation is s / sqrt(800).
    assert abs(moved.std() - 6.0 / 18) < 4 * (6.0 / 18) / np.sqrt(800)
    told = pf.privacy.guarantee(problem, algorithm, secure_threshold=14)
    assert live["epsilon"][0, -1] == pytest.approx(told.spent(1, 1e-3).epsilon, rel=0.01)
    book = json.loads((tmp_path / "server" / "ledger.json").read_text())
    assert book["mechanism"][0]["z"] == pytest.approx(3.0 * np.sqrt(14 / 20))
