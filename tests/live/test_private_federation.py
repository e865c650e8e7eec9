"""Private federations: whose noise it is, that it is there, that it is drawn once, and that the ledger knows."""

import json

import jax
import numpy as np
import pytest
from federations import Killed, OneThread, federation, gaussian, members, simulated, transport

import performative as pf
from performative.live import read_events, rehearse, rollback, serve
from performative.live.telling import RequestRefused
from performative.live.wire import decode, encode

STEPS = {"rate": 0.1, "batch": pf.Fixed(4)}
NOISY = pf.pcsgd(clip=1.0, noise_multiplier=50.0, **STEPS, deploy="round")


@pytest.mark.slow
def test_a_private_run_differs_by_its_noise_alone(tmp_path):
    """Noise comes from each client's own secret seed: neither the run's seed nor another client's gives it away."""
    algorithm = pf.pcsgd(clip=1.0, noise_multiplier=1.0, **STEPS, deploy="round")
    made = federation(algorithm=algorithm, rounds=2)
    one, two, run = rehearse(made, tmp_path / "a"), rehearse(made, tmp_path / "b"), simulated(made)
    assert not np.allclose(one.theta[:, 1], run.theta[:, 1], atol=1e-3)
    assert not np.allclose(one.theta[:, 1], two.theta[:, 1], atol=1e-3)
    seeds = {(tmp_path / "a" / "clients" / str(i) / "secret.seed").read_bytes() for i in range(5)}
    assert len(seeds) == 5
    assert all((tmp_path / "a" / "clients" / str(i) / "secret.seed").stat().st_mode & 0o77 == 0 for i in range(5))
    # The same folders, a second run: another name, hence other noise from the same secret.
    (tmp_path / "a" / "server").rename(tmp_path / "a" / "earlier")
    again = rehearse(made, tmp_path / "a")
    assert not np.allclose(one.theta[:, 1], again.theta[:, 1], atol=1e-3)


@pytest.mark.parametrize("noise", ["fast", pytest.param("secure", marks=pytest.mark.slow)])
def test_noise_has_the_size_that_was_asked_for(noise, tmp_path):
    """Each of 20 clients adds noise sigma c / sqrt(K): the mean of updates of 0 has standard deviation sigma c / K."""
    population = pf.populations.Gaussian(mean=np.zeros((20, 400)), sensitivity=np.zeros(20), scale=1e-9)
    problem = pf.Problem(loss=pf.losses.squared, population=population)
    channel = pf.channels.ClippedNoise(clip=2.0, noise_multiplier=3.0)
    privacy = pf.Privacy(delta=1e-3, unit="client", noise=noise)
    made = federation(problem, pf.p_fedavg(rate=1e-6, channel=channel, deploy="round"), rounds=1, privacy=privacy)
    moved = rehearse(made, tmp_path).theta[0, 1]
    # 400 coordinates: the standard error of a standard deviation is s / sqrt(800).
    assert abs(moved.std() - 6.0 / 20) < 4 * 0.3 / np.sqrt(800)


@pytest.mark.parametrize("noise", ["fast", pytest.param("secure", marks=pytest.mark.slow)])
def test_the_noise_of_missing_clients_is_filled_up(noise, tmp_path):
    """With client-level noise the sum keeps the promised noise when half of the clients are not heard."""
    population = pf.populations.Gaussian(mean=np.zeros((20, 400)), sensitivity=np.zeros(20), scale=1e-9)
    problem = pf.Problem(loss=pf.losses.squared, population=population)
    channel = pf.channels.ClippedNoise(clip=2.0, noise_multiplier=3.0)
    privacy = pf.Privacy(delta=1e-3, unit="client", noise=noise)
    made = federation(problem, pf.p_fedavg(rate=1e-6, channel=channel, deploy="round"), rounds=1, privacy=privacy)

    def half(client, answer):
        return answer if client % 2 else _raises

    moved = serve(made, transport(made, tmp_path, half), tmp_path / "server").theta[0, 1]
    # Ten were heard, each with weight 1/10: their mean must hide one of them, sigma c / 10.
    assert abs(moved.std() - 6.0 / 10) < 4 * 0.6 / np.sqrt(800)


def _raises(request):
    raise RuntimeError("no disk")


def test_the_ledger_is_that_of_the_simulation(tmp_path):
    algorithm = pf.p_fedavg(
        rate=0.1, channel=pf.channels.ClippedNoise(clip=1.0, noise_multiplier=2.0), participation=pf.SchemeTwo(2)
    )
    privacy = pf.Privacy(delta=1e-3, epsilon=3.0, unit="client")
    made = federation(gaussian(8), algorithm, rounds=40, privacy=privacy)
    live = rehearse(made, tmp_path)
    run = simulated(made, privacy=privacy)
    assert live.rounds[-1] == run.rounds[-1]
    assert np.array_equal(live["epsilon"], run["epsilon"])
    assert live.meta["privacy"]["stopped"] == run.meta["privacy"]["stopped"]
    assert json.loads((tmp_path / "server" / "ledger.json").read_text())["spent"] <= 3.0


def captured(made, folder):
    """The requests that each client was sent in one run."""
    seen: dict = {}

    def spy(client, answer):
        def listen(request):
            seen.setdefault(client, []).append(request)
            return answer(request)

        return listen

    serve(made, transport(made, folder, spy), folder / "server")
    return seen


def test_a_round_is_answered_once(tmp_path):
    """A server that asks the same round again with another model would learn the difference, free of noise."""
    made = federation(algorithm=NOISY, rounds=1)
    (request,) = captured(made, tmp_path)[0]
    member = members(made, tmp_path)[0]
    reply = member.answer(request)
    assert member.answer(request) == reply
    about, arrays = decode(request)
    other = encode(about, arrays | {"broadcast.theta": arrays["broadcast.theta"] + 1})
    with pytest.raises(ValueError, match="a round is answered only once"):
        member.answer(other)


def test_noise_depends_on_the_whole_request(tmp_path):
    """Two clients' folders with the same secret, asked about two models: the noise of the answers does not cancel."""
    made = federation(algorithm=NOISY, rounds=1)
    (request,) = captured(made, tmp_path)[0]
    about, arrays = decode(request)
    other = encode(about, arrays | {"broadcast.theta": arrays["broadcast.theta"] + 1e-3})
    secret = (tmp_path / "clients" / "0" / "secret.seed").read_bytes()
    replies = []
    for name, asked in (("a", request), ("b", other)):
        (tmp_path / name / "clients" / "0").mkdir(parents=True)
        (tmp_path / name / "clients" / "0" / "secret.seed").write_bytes(secret)
        replies.append(decode(members(made, tmp_path / name)[0].answer(asked))[1]["upload.delta"])
    assert np.linalg.norm(replies[0] - replies[1]) > 0.1


@pytest.mark.slow
def test_who_is_drawn_is_secret(tmp_path):
    """With the run's seed in everybody's hands, cohorts come from the server's own secret."""
    channel = pf.channels.ClippedNoise(clip=1.0, noise_multiplier=1.0)
    algorithm = pf.p_fedavg(**STEPS, channel=channel, participation=pf.SchemeTwo(2), deploy="round")
    made = federation(gaussian(8), algorithm, rounds=8)
    cohorts = [
        [sorted(decode(r)[0]["round"] for r in asked) for _, asked in sorted(captured(made, tmp_path / name).items())]
        for name in ("a", "b")
    ]
    assert cohorts[0] != cohorts[1]


def test_rows_that_were_used_are_used(tmp_path):
    """Models that are refused send no batch a second time: an epoch goes on though no answer was taken."""
    population = pf.populations.Database(z=np.arange(24.0).reshape(2, 12, 1))
    problem = pf.Problem(loss=pf.losses.squared, population=population)
    algorithm = pf.pcsgd(clip=1.0, noise_multiplier=1.0, rate=0.1, batch=pf.batches.Shuffled(3), deploy="round")
    refuse = {"before_deploy": lambda theta, report: False, "theta": np.zeros(1)}
    made = federation(problem, algorithm, rounds=3, **refuse)
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        rehearse(made, tmp_path)
    with made.precision():
        last = members(made, tmp_path)[0].store.load(made.ready.memory_like)
    assert (last.round, last.accepted) == (2, -1)
    places = [int(leaf) for leaf in jax.tree.leaves(last.after.batch)]
    assert places == [3]


def test_after_a_kill_and_a_rollback_the_round_is_lost_rather_than_answered_twice(tmp_path):
    """Clients had answered round 2 when the server died; asked again about another model, they refuse."""
    made = federation(algorithm=NOISY, rounds=5)
    sent = []

    class Dying(OneThread):
        def receive(self, seconds):
            if len(sent) == 3:
                raise Killed
            return super().receive(seconds)

        def send(self, requests, seconds):
            sent.append(requests)
            super().send(requests, seconds)

    with pytest.raises(Killed):
        serve(made, Dying(made, tmp_path), tmp_path / "server")
    rollback(made, tmp_path / "server", 0)
    live = serve(made, transport(made, tmp_path), tmp_path / "server", resume=True)
    refused = [event for event in read_events(tmp_path / "server") if event["what"] == "failed"]
    assert {event["round"] for event in refused} == {2}
    assert len(refused) == 5
    assert all("answered only once" in event["reason"] for event in refused)
    assert live.status == "completed"
    assert np.array_equal(live.theta[0, 3], live.theta[0, 0])


# --- a client's own books

BUDGET = pf.Privacy(delta=1e-3, epsilon=2.0)


def private_rows(noise, **options):
    """Tables of 40 people; each answer releases one noisy sum of everyone's gradients or of some."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(5, 40))
    problem = pf.Problem(pf.losses.squared, pf.populations.Database(z, None))
    algorithm = pf.pcsgd(0.1, clip=1.0, noise_multiplier=noise, batch=pf.Uniform(4), deploy="round")
    return federation(problem, algorithm, theta=0.0, **options)


def asked_again(request, run, round):
    """The same request in another run or round, as a server that keeps no books would send it."""
    about, arrays = decode(request)
    return encode(about | {"run": run, "round": round, "accepted": -1}, arrays)


def answers_until_refused(member, request, most=100):
    """A hostile server: a new run for every request, and no end."""
    for count in range(most):
        try:
            member.answer(asked_again(request, f"run {count}", count % 3))
        except RequestRefused as refusal:
            return count, str(refusal)
    return most, ""


def test_a_server_without_a_budget_is_refused(tmp_path):
    """Privacy is part of what a federation is: a server that knows of none gets no answer."""
    mine, theirs = private_rows(2.0, rounds=1, privacy=BUDGET), private_rows(2.0, rounds=1)
    request = captured(theirs, tmp_path / "theirs")[0][0]
    with pytest.raises(RequestRefused, match=r"the server's problem, algorithm, .* privacy"):
        members(mine, tmp_path)[0].answer(request)


def test_a_client_keeps_its_own_budget_whatever_the_server_says(tmp_path):
    made = private_rows(3.0, rounds=1, privacy=BUDGET)
    request = captured(made, tmp_path)[0][0]
    promise = pf.privacy.guarantee(made.problem, made.algorithm)
    most = int(promise.most_rounds(2.0, 1e-3))
    assert 3 <= most <= 60  # one was answered already, in the run that is captured
    member = members(made, tmp_path)[0]
    assert member.answer(request) == member.answer(request)  # the same answer again costs nothing
    count, refusal = answers_until_refused(member, request)
    assert 1 + count == most and "own privacy budget, epsilon = 2, is spent" in refusal
    assert promise.spent(most, 1e-3).epsilon <= 2.0 < promise.spent(most + 1, 1e-3).epsilon
    # A process that is started anew reads the same books.
    assert answers_until_refused(members(made, tmp_path)[0], asked_again(request, "new", 0))[0] == 0


def test_runs_with_other_noise_are_added_up(tmp_path):
    weak, strong = private_rows(3.0, rounds=1, privacy=BUDGET), private_rows(30.0, rounds=1, privacy=BUDGET)
    request = captured(weak, tmp_path)[0][0]
    member = members(weak, tmp_path)[0]
    for count in range(3):
        member.answer(asked_again(request, f"run {count}", 0))
    spent = pf.privacy.guarantee(weak.problem, weak.algorithm).spent(4, 0.5e-3).epsilon
    ledger = members(strong, tmp_path)[0].ledger
    alone = pf.privacy.guarantee(strong.problem, strong.algorithm).most_rounds(2.0 - spent, 0.5e-3)
    assert ledger.most(ledger.answered()) == alone


def test_books_that_were_lost_or_altered_end_the_answers(tmp_path):
    made = private_rows(3.0, rounds=1, privacy=BUDGET)
    request = captured(made, tmp_path)[0][0]
    book = tmp_path / "clients" / "0" / "privacy.bin"
    kept = book.read_bytes()
    book.unlink()
    with pytest.raises(RequestRefused, match="missing or older than its answers"):
        members(made, tmp_path)[0].answer(asked_again(request, "next", 0))
    book.write_bytes(kept[:-3] + b"1e9")
    with pytest.raises(ValueError, match="altered or damaged"):
        members(made, tmp_path)[0].answer(asked_again(request, "next", 0))
    book.write_bytes(kept)
    members(made, tmp_path)[0].answer(asked_again(request, "next", 0))
