"""What is promised for which parts, and what is not."""

import math

import numpy as np
import pytest

import performative as pf
from performative.privacy import calibrate, guarantee, spent
from performative.privacy.accounting import Everyone, PoissonSampling, WithoutReplacement

ROWS, DELTA = 1000, 1e-5
TABLE = pf.Problem(pf.losses.squared, pf.populations.Database(np.zeros((3, ROWS))))
PRIVATE = {"clip": 1.0, "noise_multiplier": 2.0}


def pcsgd(**parts):
    return pf.pcsgd(0.1, **PRIVATE, **parts)


@pytest.mark.parametrize(
    ("batch", "sampling", "multiplier", "each"),
    [
        (pf.Fixed(1), WithoutReplacement(1, ROWS), 2.0, 1),
        (pf.Fixed(4), WithoutReplacement(1, ROWS), 1.0, 4),
        (pf.Uniform(20), WithoutReplacement(20, ROWS), 2.0, 1),
        (pf.Poisson(0.01, 50), PoissonSampling(0.01, ROWS, 50), 2.0, 1),
    ],
)
def test_the_sampler_is_the_one_that_is_used(batch, sampling, multiplier, each):
    for steps in (1, 5):
        (each_kind,) = guarantee(TABLE, pcsgd(batch=batch, local_steps=steps)).releases
        release = each_kind.after(7)
        assert release.sampling == sampling
        assert release.noise_multiplier == pytest.approx(multiplier)
        assert release.steps == 7 * steps * each


def test_an_epoch_counts_once():
    promise = guarantee(TABLE, pcsgd(batch=pf.Shuffled(300), local_steps=2))  # 3 batches an epoch, 100 rows left out
    assert [promise.releases[0].after(rounds).steps for rounds in (1, 2, 3, 4)] == [1, 2, 2, 3]
    assert promise.releases[0].after(1).sampling == Everyone()


def test_draws_with_replacement_are_bounded_from_above():
    one, four = (guarantee(TABLE, pcsgd(batch=b)).spent(50, DELTA).epsilon for b in (pf.Uniform(4), pf.Fixed(4)))
    assert one < four  # 0.23 and 2.44: a true bound, and a reason to take Uniform


def test_people_who_come_once_are_asked_once():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(3), 0.1, 1.0))
    promise = guarantee(problem, pcsgd(local_steps=3))
    assert promise.releases[0].after(100).steps == 1
    assert "no person is sampled twice" in promise.assumes[-1]


def test_the_worst_table_counts():
    tables = pf.populations.Database([np.zeros(50), np.zeros(500)])
    promise = guarantee(pf.Problem(pf.losses.squared, tables), pcsgd(batch=pf.Uniform(5)))
    assert promise.releases[0].after(1).sampling == WithoutReplacement(5, 50)
    # Which table is worst under a sample that may be cut is not clear beforehand: all are looked at.
    often = guarantee(pf.Problem(pf.losses.squared, tables), pf.pcsgd(0.1, 1.0, 10.0, batch=pf.Poisson(0.9, 60)))
    assert [kind.sampling for kind in often.releases] == [PoissonSampling(0.9, rows, 60) for rows in (50, 500)]
    small = pf.Problem(pf.losses.squared, pf.populations.Database(np.zeros((1, 50))))
    alone = guarantee(small, pf.pcsgd(0.1, 1.0, 10.0, batch=pf.Poisson(0.9, 60)))
    assert often.spent(100, DELTA).epsilon >= alone.spent(100, DELTA).epsilon


CLIENTS = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(100), 0.1, 1.0))
NOISY = pf.channels.ClippedNoise(1.0, 2.0)


def test_clients_that_are_summed():
    promise = guarantee(CLIENTS, pf.p_fedavg(0.1, channel=NOISY, participation=pf.SchemeTwo(10), local_steps=5))
    assert promise.unit == "client"
    assert promise.releases[0].after(7) == pf.privacy.accounting.Release(2.0, 7, WithoutReplacement(10, 100))
    everyone = guarantee(CLIENTS, pf.p_fedavg(0.1, channel=NOISY))
    assert everyone.releases[0].after(7) == pf.privacy.accounting.Release(2.0, 7, Everyone())


def test_heavy_clients_are_hidden_less():
    p = np.asarray([0.7, 0.1, 0.1, 0.1])
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(4), 0.1, 1.0), weights=p)
    multiplier = guarantee(problem, pf.p_fedavg(0.1, channel=NOISY)).releases[0].after(1).noise_multiplier
    # The sum moves by 0.7 clips; its noise is 2 sqrt(sum p^2) / sqrt(4) clips.
    assert multiplier == pytest.approx(2.0 * np.sqrt(np.sum(p**2)) / 2 / 0.7)


@pytest.mark.parametrize(
    "parts",
    [{"participation": pf.SchemeOne(10)}, {"participation": pf.SchemeTwo(10), "aggregator": pf.aggregators.Varp()}],
    ids=["drawn twice", "remembered"],
)
def test_clients_whose_messages_are_used_singly(parts):
    release = guarantee(CLIENTS, pf.p_fedavg(0.1, channel=NOISY, **parts)).releases[0].after(7)
    assert release.sampling == Everyone()
    assert release.noise_multiplier == pytest.approx(2.0 / np.sqrt(10))


class Own(pf.estimators.AbstractEstimator):
    """What somebody else wrote."""

    def estimate(self, noise, theta, batch, local, memory):
        raise NotImplementedError  # only its type is looked at


class TellTale(pf.aggregators.Mean):
    """A mean that would tell how many gradients were clipped."""

    def aggregate(self, theta, upload, cohort, weights, memory):
        return upload.metrics["clipped"][0] * 1.0, memory


class OwnChannel(pf.channels.Plain):
    """What somebody else made of a known one."""


class Grudge(pf.populations.AbstractPopulation):
    """People who remember every model that they met."""

    mean: object = pf.per_client()

    def init(self, scene):
        return scene.theta

    def deploy(self, world, scene):
        return world + scene.theta

    def draw(self, key, theta):
        return None

    def sample(self, noise, world, theta):
        return self.mean + world


def uncertified():
    clipped = pf.estimators.Clipped(1.0, 2.0)
    reweighted = pf.populations.Reweighted(np.zeros((2, 9, 1)), np.arange(18).reshape(2, 9) % 3, temperature=1.0)
    window = pf.estimators.Performative(5)
    junk = pf.populations.Contaminated(TABLE.population, 0.5, TABLE.population)
    seen = pf.p_fedavg(0.1, channel=NOISY, estimator=window, participation=pf.SchemeOne(5))
    control = pf.p_fedavg(
        0.1, channel=NOISY, estimator=pf.estimators.ControlVariate(pf.estimators.Minibatch()),
        aggregator=pf.aggregators.Scaffold(),
    )  # fmt: skip
    return {
        "bounds no person's gradient": (TABLE, pf.p_fedavg(0.1)),
        "replays one person's gradient": (TABLE, pf.dicesgd(0.1, 1.0, 1.0, 2.0 * math.sqrt(96))),
        "chooses how many samples": (TABLE, pf.p_fedavg(0.1, estimator=pf.estimators.AdaptiveSize(window, 1.0))),
        "leaves samples out": (TABLE, pf.p_fedavg(0.1, estimator=pf.estimators.Filtered(clipped))),
        "PowerOfChoice may select clients based on their data": (
            TABLE,
            pcsgd(participation=pf.participation.PowerOfChoice(1, 2)),
        ),
        "AdaComm may choose the number of steps": (
            TABLE,
            pcsgd(participation=pf.LocalWork(pf.Full(), pf.participation.AdaComm(4))),
        ),
        "outlier's table": (pf.Problem(pf.losses.squared, junk), pcsgd()),
        "there is no noise": (TABLE, pf.pcsgd(0.1, 1.0, 0.0)),
        "Own bounds no person's gradient": (TABLE, pf.p_fedavg(0.1, estimator=Own())),
        "ControlVariate may send more": (CLIENTS, control),
        "the aggregator TellTale uses": (TABLE, pcsgd(aggregator=TellTale())),
        "the aggregator TellTale": (
            TABLE,
            pcsgd(aggregator=pf.aggregators.ServerOpt(TellTale(), pf.optimizers.Momentum(0.9))),
        ),
        "TellTale uses": (CLIENTS, pf.p_fedavg(0.1, channel=NOISY, aggregator=TellTale())),
        "what OwnChannel does with a model": (TABLE, pcsgd(channel=OwnChannel())),
        "how Grudge picks people": (pf.Problem(pf.losses.squared, Grudge(np.zeros(2))), pcsgd()),
        "how Reweighted picks people": (pf.Problem(pf.losses.squared, reweighted), pcsgd()),
        "Performative may send more": (CLIENTS, seen),
    }


@pytest.mark.parametrize("reason", list(uncertified()))
def test_what_cannot_be_certified_is_infinite_and_says_why(reason):
    problem, algorithm = uncertified()[reason]
    promise = guarantee(problem, algorithm)
    assert not promise.certified and reason in promise.why[0]
    assert promise.spent(1, DELTA).epsilon == math.inf
    assert promise.spent(0, DELTA).epsilon == 0.0
    assert promise.most_rounds(1e9, DELTA) == 0


def test_counts_are_out_of_reach_of_aggregators():
    """What carries no noise is not handed to the server's rule, in any run."""
    with pytest.raises(KeyError, match="clipped"):
        pf.run(TABLE, pcsgd(aggregator=TellTale()), 1, theta=0.0, record=pf.Record(risks=False))


def test_published_losses_are_not_covered():
    promise = guarantee(TABLE, pcsgd(), published=("losses",))
    assert promise.spent(1, DELTA).epsilon == math.inf
    assert promise.why == ("losses would be published without noise",)


def test_who_was_drawn_is_not_hidden_where_it_shows():
    """By the size of the noise where weights differ, and by what other clients remember."""
    unequal = pf.Problem(pf.losses.squared, CLIENTS.population, weights=np.append(0.5, np.full(99, 0.5 / 99)))
    some = {"channel": NOISY, "participation": pf.SchemeTwo(10)}
    slow = pf.populations.Contaminated(CLIENTS.population, 0.1, pf.populations.Sluggish(CLIENTS.population, 0.5))
    nested = pf.populations.Mixture((CLIENTS.population, slow), pf.populations.shares.Linear([0.5, 0.5], [0.1, -0.1]))
    for problem, algorithm in (
        (unequal, pf.p_fedavg(0.1, **some)),
        (CLIENTS, pf.dicesgd(0.1, 1.0, 1.0, 1.0, **some)),
        (pf.Problem(pf.losses.squared, pf.populations.Sluggish(CLIENTS.population, 0.5)), pf.p_fedavg(0.1, **some)),
        (pf.Problem(pf.losses.squared, Grudge(np.zeros(100))), pf.p_fedavg(0.1, **some)),
        (pf.Problem(pf.losses.squared, nested), pf.p_fedavg(0.1, **some)),
        (CLIENTS, pf.p_fedavg(0.1, batch=pf.batches.Shuffled(1), **some)),
    ):
        assert guarantee(problem, algorithm).releases[0].sampling == Everyone()


def test_what_follows_the_noise_costs_nothing():
    inside = pf.estimators.Prox(pf.estimators.Clipped(1.0, 2.0), 0.1)
    outside = pf.estimators.Preconditioned(inside, pf.optimizers.Momentum(0.9))
    plain = guarantee(TABLE, pcsgd(batch=pf.Uniform(5)))
    assert guarantee(TABLE, pf.p_fedavg(0.1, estimator=outside, batch=pf.Uniform(5))) == plain


def test_a_plain_channel_protects_no_client():
    promise = guarantee(TABLE, pcsgd(), unit="client")
    assert "Plain does not bound the clients' updates" in promise.why[0]


def test_dice_by_the_bound_that_holds():
    promise = guarantee(TABLE, pf.dicesgd(0.1, 1.0, 3.0, 40.0, batch=pf.Uniform(2)), conservative=True)
    # A step moves by 2 (C1 + n C2) = 14 on the sum; `Everyone` has the 2.
    assert promise.releases[0].after(9).noise_multiplier == pytest.approx(40.0 / 7)
    assert promise.releases[0].after(9).sampling == Everyone()
    assert math.isfinite(promise.spent(9, DELTA).epsilon)
    # Drawn with replacement one person can be in the batch twice; and no table is no reason to count one step only.
    twice = guarantee(TABLE, pf.dicesgd(0.1, 1.0, 3.0, 40.0, batch=pf.Fixed(2)), conservative=True)
    assert twice.releases[0].noise_multiplier == pytest.approx(40.0 / 8)
    fresh = guarantee(CLIENTS, pf.dicesgd(0.1, 1.0, 3.0, 40.0), conservative=True)
    assert fresh.releases[0].after(9).steps == 9


def test_most_rounds_is_the_last_that_fits():
    promise = guarantee(TABLE, pcsgd(batch=pf.Uniform(20)))
    most = promise.most_rounds(2.0, DELTA)
    assert promise.spent(most, DELTA).epsilon <= 2.0 < promise.spent(most + 1, DELTA).epsilon


def test_calibration_answers_spending():
    how = {"batch": pf.Fixed(4), "rows": ROWS}
    noise = calibrate(1.0, DELTA, 100, **how)
    assert spent(noise, 100, DELTA, **how).epsilon <= 1.0 < spent(0.98 * noise, 100, DELTA, **how).epsilon
    cohort = {"participation": pf.SchemeTwo(100), "clients": 10_000}
    assert 13.4 * 0.98 < spent(1.0, 1000, 1e-5, **cohort).epsilon < 14.8 * 1.02


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: spent(1.0, 10, DELTA, batch=pf.Uniform(2)), "rows: pass the number"),
        (lambda: spent(1.0, 10, DELTA, participation=pf.SchemeTwo(2)), "clients: pass the number"),
        (lambda: spent(1.0, 10, DELTA, participation=pf.SchemeOne(2), clients=9), "SchemeOne selects clients"),
        (lambda: spent(1.0, 10, DELTA, batch=pf.Fixed(1), participation=pf.Full()), "not both"),
        (lambda: spent(1.0, 10, 2.0), "delta"),
        (lambda: guarantee(TABLE, pcsgd(), unit="person"), "unit must be"),
        (lambda: guarantee(TABLE, pcsgd(), published=("loss",)), "published: choose from"),
        (lambda: pf.Privacy(1e-5, float("inf")), "above 0 and finite"),
        (lambda: pf.estimators.Clipped(np.ones(2), 1.0), "clip must be one number"),
        (lambda: pf.Privacy(0.0), "delta must lie"),
        (lambda: pf.Privacy(1e-5, -1.0), "epsilon must be above 0"),
        (lambda: pf.Privacy(1e-5, noise="fastest"), "noise must be"),
    ],
)
def test_slips_are_named(ask, words):
    with pytest.raises(ValueError, match=words):
        ask()
