"""The attacks are silent where the claim is true, also where they are strong."""

import itertools

import pytest

import performative as pf
from performative.privacy import attack
from performative.privacy.attack.trials import try_neighbors

pytestmark = pytest.mark.slow

# Noise multipliers with seeds and clips; the shapes are shared, so that each kind of run is compiled once.
SETTINGS = [(1.0, 1.0, 11), (3.0, 0.5, 12), (8.0, 2.0, 13)]
KINDS = {
    "fixed": (pf.Fixed(1), 20, 50),
    "fixed of several": (pf.Fixed(3), 20, 20),
    "uniform": (pf.Uniform(2), 8, 20),
    "poisson": (pf.Poisson(0.2, 8), 8, 20),
    "shuffled": (pf.Shuffled(2), 16, 32),
}


@pytest.mark.parametrize(("kind", "setting"), list(itertools.product(KINDS, SETTINGS)))
def test_examples(kind, setting):
    (batch, rows, rounds), (noise, clip, seed) = KINDS[kind], setting
    trials = try_neighbors(pf.pcsgd(0.5, clip, noise, batch=batch), rows, rounds, 1000, seed, None, None)
    # The claim holds for every delta; at the large one there is more to be seen.
    for delta in (1e-5, 0.01, 0.1):
        found = trials.finding(delta)
        assert not found.alarm, found.sentence


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_clients(setting):
    noise, clip, seed = setting
    channel = pf.channels.ClippedNoise(clip, noise)
    algorithm = pf.p_fedavg(0.5, channel=channel, participation=pf.SchemeTwo(3))
    found = attack.neighbors(algorithm, rows=10, rounds=10, repeats=1000, seed=seed)
    assert not found.alarm and found.unit == "client", found.sentence


@pytest.mark.parametrize("setting", SETTINGS)
def test_single_releases(setting):
    noise, clip, seed = setting
    found = attack.release(pf.pcsgd(0.5, clip, noise), seed=seed)
    # The strongest of the attacks: it shows most of what there is to show.
    assert 0.5 * found.claimed < found.lower < found.claimed, found.sentence


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_messages(setting):
    noise, clip, seed = setting
    found = attack.messages(pf.pcsgd(0.5, clip, noise), rows=20, rounds=20, repeats=1000, seed=seed)
    assert not found.alarm, found.sentence


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_canaries(setting):
    noise, clip, seed = setting
    everyone = pf.pcsgd(0.5, clip, noise, batch=pf.Uniform(50))
    assert not attack.canaries(everyone, rows=50, canaries=10_000, seed=seed).alarm
    some = pf.pcsgd(0.5, clip, noise, batch=pf.Fixed(1))
    assert not attack.canaries(some, rows=50, rounds=50, canaries=10_000, seed=seed).alarm
    clients = pf.p_fedavg(0.5, channel=pf.channels.ClippedNoise(clip, noise))
    assert not attack.canaries(clients, rows=50, canaries=10_000, seed=seed).alarm
