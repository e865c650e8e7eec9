"""Models of clients' own with channels, robust aggregators, checkpoints, sweeps and executors."""

import numpy as np
import pytest

import performative as pf

MEAN, EPS = np.array([[0.0, 1.0], [1.0, 0.5], [6.0, -2.0], [2.0, 2.0]]), np.array([0.2, 0.5, 0.8, -0.5])
PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian(MEAN, EPS, np.ones(4)), weights=[0.1, 0.4, 0.2, 0.3])
SHARINGS = {
    "Ditto": pf.sharing.Ditto(0.5),
    "Heads": pf.sharing.Heads(np.array([True, False])),
    "PerClient": pf.sharing.PerClient(),
    "Groups": pf.sharing.Groups([0, 1, 1, 0]),
    "PFedMe": pf.sharing.PFedMe(0.5),
    "Interpolated": pf.sharing.Interpolated(0.3),
    "LearnedGroups": pf.sharing.LearnedGroups(2, spread=0.3),
}
BY_NAME = [pytest.param(name, marks=() if name == "Ditto" else pytest.mark.slow) for name in SHARINGS]


def made(name, **parts):
    return pf.p_fedavg(0.1, local_steps=2, batch=pf.Fixed(3), sharing=SHARINGS[name], **parts)


def ran(algorithm, rounds=6, problem=PROBLEM, **options):
    return pf.run(problem, algorithm, rounds, dtype="float64", record=pf.Record(risks=False), **options)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize(
    "channel",
    [
        pf.channels.Sparse(4),
        pytest.param(pf.channels.Quantized(16), marks=pytest.mark.slow),
        pytest.param(pf.channels.ClippedNoise(1e6, 0.0), marks=pytest.mark.slow),
    ],
    ids=lambda channel: type(channel).__name__,
)
def test_a_channel_that_changes_nothing(name, channel):
    """All entries kept, 65,000 levels, a clip that does not bite: the run is that of no channel."""
    through, plain = ran(made(name, channel=channel)), ran(made(name))
    np.testing.assert_allclose(through.theta, plain.theta, rtol=0, atol=2e-3)
    np.testing.assert_allclose(through.models, plain.models, rtol=0, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Ditto", "PFedMe", "Groups", "Heads"])
def test_noise_of_a_channel_falls_on_what_is_shared(name):
    """A client's own entries meet it through the shared ones alone: heads of `Heads` stay as they were."""
    loud, plain = (ran(made(name, channel=pf.channels.ClippedNoise(5.0, s), deploy="never")) for s in (3.0, 0.0))
    assert np.abs(loud.theta - plain.theta).max() > 0.1
    if name == "Heads":
        np.testing.assert_allclose(loud.models[..., 0], plain.models[..., 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "rule",
    [pf.aggregators.TrimmedMean(0.2), pytest.param(pf.aggregators.Krum(1), marks=pytest.mark.slow)],
    ids=lambda rule: type(rule).__name__,
)
def test_one_wild_client_does_not_carry_the_shared_model_away(rule):
    mean = np.array([0.0, 0.1, -0.1, 0.05, 1000.0])
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, np.full(5, 0.3), np.full(5, 0.01)))
    robust, plain = (
        ran(pf.p_fedavg(0.1, sharing=pf.sharing.Ditto(1.0), aggregator=a), 300, problem)
        for a in (rule, pf.aggregators.Mean())
    )
    assert abs(robust.final[0]) < 0.5 and abs(plain.final[0]) > 100
    assert np.abs(robust.models[0, :4]).max() < 0.5 and robust.models[0, 4] > 500  # its people still have their model


@pytest.mark.parametrize("name", BY_NAME)
def test_a_run_that_was_cut_goes_on_to_the_same_bits(name, tmp_path):
    algorithm = made(name, participation=pf.SchemeTwo(2), deploy=pf.Every(2), channel=pf.channels.Sparse(1))

    def kept(folder):
        return pf.Checkpoint(tmp_path / folder, every=3, resume=True)

    whole = ran(algorithm, checkpoint=kept("whole"))
    ran(algorithm, 3, checkpoint=kept("cut"))
    again = ran(algorithm, checkpoint=kept("cut"))
    assert np.array_equal(again.theta, whole.theta)
    assert np.array_equal(again.models, whole.models)


@pytest.mark.slow
def test_numbers_of_a_sharing_are_swept():
    algorithm = made("Ditto")
    swept = pf.sweep(PROBLEM, algorithm, {"sharing.strength": [0.3, 2.0]}, 6, dtype="float64")
    for strength, history in zip((0.3, 2.0), swept.histories, strict=True):
        other = pf.p_fedavg(0.1, local_steps=2, batch=pf.Fixed(3), sharing=pf.sharing.Ditto(strength))
        alone = pf.run(PROBLEM, other, 6, dtype="float64")
        np.testing.assert_allclose(history.theta, alone.theta, rtol=0, atol=1e-12)
        np.testing.assert_allclose(history.models, alone.models, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARINGS)
def test_executors_agree_with_all_of_it(name):
    parts = {"participation": pf.SchemeTwo(3), "deploy": pf.Every(2), "channel": pf.channels.Quantized(4)}
    algorithm = made(name, aggregator=pf.aggregators.TrimmedMean(0.34), **parts)
    dense, *others = (ran(algorithm, executor=executor) for executor in ("dense", "gather", "loop"))
    for other in others:
        np.testing.assert_allclose(other.theta, dense.theta, rtol=0, atol=1e-9)
        np.testing.assert_allclose(other.models, dense.models, rtol=0, atol=1e-9)
