"""The attacks refute what is not true."""

import jax
import pytest
from broken_parts import NoClip, SharedKeys, WeakChannel, WeakNoise

import performative as pf
from performative import attack
from performative.engine import chunk

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.mark.parametrize(("noise", "share"), [(2.0, 0.5), (4.0, 0.5), (4.0, 0.25)])
def test_weak_noise_by_canaries(noise, share):
    algorithm = pf.Algorithm(1.0, estimator=WeakNoise(1.0, noise, share=share), batch=pf.Uniform(250))
    found = attack.canaries(algorithm, rows=250, canaries=100_000)
    assert found.alarm, found.sentence


@pytest.mark.parametrize("share", [0.5, 0.25])
@pytest.mark.parametrize("noise", [1.0, 10.0])
def test_weak_noise_by_single_releases(noise, share):
    algorithm = pf.Algorithm(1.0, estimator=WeakNoise(2.0, noise, share=share))
    found = attack.release(algorithm)
    assert found.alarm, found.sentence


def test_weak_noise_of_clients():
    algorithm = pf.p_fedavg(1.0, channel=WeakChannel(1.0, 4.0))
    found = attack.release(algorithm, repeats=20_000)
    assert found.alarm and found.unit == "client", found.sentence
    found = attack.canaries(algorithm, rows=100, canaries=100_000)
    assert found.alarm and found.unit == "client", found.sentence


def test_missing_clip():
    algorithm = pf.Algorithm(1.0, estimator=NoClip(1.0, 4.0), batch=pf.Fixed(1))
    found = attack.neighbours(algorithm, rows=20, rounds=50, repeats=1000)
    assert found.alarm, found.sentence


@pytest.fixture
def shared_keys(monkeypatch):
    """The engine with one key for the noise of all clients. Compiled programs do not know about it."""
    jax.clear_caches()
    monkeypatch.setattr(chunk, "run_keys", lambda key: SharedKeys(*jax.random.split(key, 5)))
    yield
    jax.clear_caches()


def test_one_key_for_all_clients(shared_keys):
    algorithm = pf.pcsgd(1.0, 1.0, 6.0, batch=pf.Fixed(1))
    found = attack.messages(algorithm, rows=20, rounds=50, repeats=1000)
    assert found.alarm, found.sentence
    # Whoever sees one client alone does not notice.
    alone = attack.neighbours(algorithm, rows=20, rounds=50, repeats=1000)
    assert not alone.alarm, alone.sentence


def test_one_key_for_all_channels(shared_keys):
    found = attack.messages(pf.p_fedavg(1.0, channel=pf.channels.ClippedNoise(1.0, 8.0)), rounds=5, repeats=1000)
    assert found.alarm and found.unit == "client", found.sentence
