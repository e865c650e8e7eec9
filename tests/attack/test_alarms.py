"""The attacks refute what is not true."""

import pytest
from faults import no_clip, shared_keys, weak_channel, weak_noise

import performative as pf
from performative.privacy import attack


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "share"), [(2.0, 0.5), (4.0, 0.5), (4.0, 0.25)])
def test_weak_noise_by_canaries(noise, share):
    with weak_noise(share):
        found = attack.canaries(pf.pcsgd(1.0, 1.0, noise, batch=pf.Uniform(250)), rows=250, canaries=100_000)
    assert found.alarm, found.sentence


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.25])
@pytest.mark.parametrize("noise", [1.0, 10.0])
def test_weak_noise_by_single_releases(noise, share):
    with weak_noise(share):
        found = attack.release(pf.pcsgd(1.0, 2.0, noise))
    assert found.alarm, found.sentence


@pytest.mark.slow
def test_weak_noise_of_clients():
    algorithm = pf.p_fedavg(1.0, channel=pf.channels.ClippedNoise(1.0, 4.0))
    with weak_channel(0.5):
        release = attack.release(algorithm, repeats=20_000)
        canaries = attack.canaries(algorithm, rows=100, canaries=100_000)
    for found in (release, canaries):
        assert found.alarm and found.unit == "client", found.sentence


def test_missing_clip():
    with no_clip():
        found = attack.neighbors(pf.pcsgd(1.0, 1.0, 4.0, batch=pf.Fixed(1)), rows=20, rounds=50, repeats=1000)
    assert found.alarm, found.sentence


@pytest.mark.slow
def test_one_key_for_all_clients():
    algorithm = pf.pcsgd(1.0, 1.0, 6.0, batch=pf.Fixed(1))
    with shared_keys():
        found = attack.messages(algorithm, rows=20, rounds=50, repeats=1000)
        # Whoever sees one client alone does not notice.
        alone = attack.neighbors(algorithm, rows=20, rounds=50, repeats=1000)
    assert found.alarm, found.sentence
    assert not alone.alarm, alone.sentence


@pytest.mark.slow
def test_one_key_for_all_channels():
    algorithm = pf.p_fedavg(1.0, channel=pf.channels.ClippedNoise(1.0, 8.0))
    with shared_keys():
        found = attack.messages(algorithm, rounds=5, repeats=1000)
    assert found.alarm and found.unit == "client", found.sentence
