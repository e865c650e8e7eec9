"""Shamir's secret sharing: any t shares give the secret, fewer say nothing, and known numbers come out."""

import itertools
import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from performative.live.secure import shamir
from performative.live.secure.shamir import PRIME, SHARE, Joiner, split


def test_the_prime_is_prime():
    """Miller-Rabin with 40 bases, and nothing between 2^256 and it passes Fermat's test to base 3."""
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        x = pow(base, odd, PRIME)
        assert x in (1, PRIME - 1) or any((x := x * x % PRIME) == PRIME - 1 for _ in range(twos - 1))
    assert not any(pow(3, n - 1, n) == 1 for n in range((1 << 256) + 1, PRIME, 2))


@settings(max_examples=40, deadline=None)
@given(secret=st.binary(min_size=32, max_size=32), n=st.integers(1, 12), data=st.data())
def test_any_t_shares_give_the_secret(secret, n, data):
    t = data.draw(st.integers(1, n))
    holders = data.draw(st.lists(st.integers(0, 500), min_size=n, max_size=n, unique=True))
    shares = split(secret, holders, t)
    assert all(len(share) == SHARE for share in shares.values())
    some = data.draw(st.permutations(holders))[:t]
    assert Joiner(some).join({holder: shares[holder] for holder in some}) == secret


def test_known_numbers(monkeypatch):
    """f(x) = 1234 + 166 x + 94 x^2: the worked example that every text on the scheme prints."""
    drawn = iter([166, 94])
    monkeypatch.setattr(secrets, "randbelow", lambda most: next(drawn))
    shares = split((1234).to_bytes(32, "big"), range(6), 3)
    assert [int.from_bytes(shares[i], "big") for i in range(6)] == [1494, 1942, 2578, 3402, 4414, 5614]
    for three in itertools.combinations(range(6), 3):
        assert int.from_bytes(Joiner(three).join({i: shares[i] for i in three}), "big") == 1234


def test_fewer_shares_fit_every_secret():
    """For t - 1 shares and any secret there is exactly one polynomial: they say nothing about which it is."""
    shares = split(secrets.token_bytes(32), range(5), 3)
    for secret in (0, 1, 1 << 255, PRIME - 1):
        # The polynomial through (0, secret), (1, f(1)), (2, f(2)) exists, and has degree 2: solve for it.
        one, two = (int.from_bytes(shares[i], "big") for i in (0, 1))
        half = pow(2, -1, PRIME)
        a2 = ((two - secret) - 2 * (one - secret)) * half % PRIME
        a1 = (one - secret - a2) % PRIME
        assert shamir._value([secret, a1, a2], 1) == one
        assert shamir._value([secret, a1, a2], 2) == two


def test_shares_that_do_not_belong_together():
    """A share of another secret gives another number, not the secret; what is no secret at all is refused."""
    one, other = (split(bytes([k]) * 32, range(4), 3) for k in (1, 2))
    try:
        assert Joiner(range(3)).join({0: one[0], 1: one[1], 2: other[2]}) != bytes([1]) * 32
    except ValueError as error:
        assert "do not belong together" in str(error)
    large = {0: (PRIME - 1).to_bytes(SHARE, "big")}
    with pytest.raises(ValueError, match="do not belong together"):
        Joiner([0]).join(large)


@pytest.mark.parametrize(("holders", "t"), [(range(3), 4), (range(3), 0), ([1, 1], 2), ([-1, 2], 2)])
def test_what_is_refused(holders, t):
    with pytest.raises(ValueError, match="threshold must lie in"):
        split(bytes(32), holders, t)
    with pytest.raises(ValueError, match="secret must have 32 bytes"):
        split(bytes(31), range(3), 2)
