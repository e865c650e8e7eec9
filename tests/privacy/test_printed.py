"""The printed noise and what it really gives: the errata's rows."""

import pytest

from performative.privacy.printed import corollary_3_6_as_printed


@pytest.mark.parametrize(
    ("claimed", "delta", "steps", "rows", "low", "high", "in_regime"),
    [
        (0.1, 1e-5, 10**5, 10**5, 1241, 1242, False),
        (1.0, 1 / 15776, 10**5, 15776, 9138, 9138, False),
        (0.1, 1e-5, 10**6, 10**5, 198, 206, False),
        (1.0, 1e-5, 10**6, 10**3, 2.65, 3.27, True),
        (0.1, 1e-5, 10**5, 10**3, 0.194, 0.208, True),
    ],
)
def test_the_printed_noise_gives_what_the_errata_say(claimed, delta, steps, rows, low, high, in_regime):
    printed = corollary_3_6_as_printed(claimed, delta, steps, rows, clip=2.0)
    assert 0.98 * low <= printed.real_epsilon <= 1.02 * high
    assert printed.real_epsilon > printed.claimed_epsilon
    assert printed.in_regime is in_regime


def test_the_papers_own_numbers_under_poisson_sampling():
    printed = corollary_3_6_as_printed(0.1, 1e-5, 10**5, 10**5, clip=3.0)
    assert printed.noise_multiplier == pytest.approx(0.107, abs=5e-4)
    assert printed.sigma == pytest.approx(3.0 * printed.noise_multiplier)
    assert printed.poisson_epsilon == pytest.approx(259, rel=0.01)


def test_it_says_what_it_claims_and_what_it_gives():
    text = str(corollary_3_6_as_printed(0.1, 1e-5, 10**5, 10**5, clip=1.0))
    assert "claims epsilon 0.1" in text
    assert "it provides 124" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a positive number"),
        ({"clip": -1.0}, "clip must be a positive number"),
        ({"delta": 1.0}, "delta must lie between"),
        ({"steps": 0}, "steps must be a whole number >= 1"),
        ({"rows": 2.5}, "rows must be a whole number >= 1"),
    ],
)
def test_bad_numbers_are_refused(change, message):
    good = {"epsilon": 1.0, "delta": 1e-5, "steps": 10, "rows": 100, "clip": 1.0}
    with pytest.raises(ValueError, match=message):
        corollary_3_6_as_printed(**(good | change))
