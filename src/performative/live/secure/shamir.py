"""Shamir's secret sharing: t of n shares reconstruct a secret, t - 1 reveal nothing about it.

    f(x) = s + a_1 x + ... + a_(t-1) x^(t-1)  mod P,      share of holder i: f(i + 1),      s = f(0)

a_k are uniform modulo the prime P = 2^256 + 297, so any 32 bytes can be a secret. Shamir 1979.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence

# The smallest prime above 2^256.
PRIME = (1 << 256) + 297
SECRET = 32
# A share may need the 257th bit.
SHARE = 33


def split(secret: bytes, holders: Iterable[int], threshold: int) -> dict[int, bytes]:
    """A share of the secret for each holder, a number >= 0."""
    places = list(holders)
    if len(secret) != SECRET:
        raise ValueError(f"secret must have {SECRET} bytes; got {len(secret)}.")
    if not 1 <= threshold <= len(places) or len(set(places)) != len(places) or min(places) < 0:
        raise ValueError(f"threshold must lie in 1..{len(places)}, with holders numbered once; got {threshold}.")
    polynomial = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {holder: _value(polynomial, holder + 1).to_bytes(SHARE, "big") for holder in places}


def _value(polynomial: Sequence[int], x: int) -> int:
    total = 0
    for coefficient in reversed(polynomial):
        total = (total * x + coefficient) % PRIME
    return total


class Joiner:
    """Reconstruct secrets from the shares of the same holders; their coefficients are computed once.

    s = sum_i share_i l_i,      l_i = prod_(j != i) x_j / (x_j - x_i)  mod P
    """

    def __init__(self, holders: Iterable[int]):
        places = {holder: holder + 1 for holder in holders}
        self.coefficients = {holder: _lagrange(x, list(places.values())) for holder, x in places.items()}

    def join(self, shares: Mapping[int, bytes]) -> bytes:
        """The secret. Shares that do not lie on one polynomial yield another number, or raise ValueError."""
        total = sum(factor * int.from_bytes(shares[holder], "big") for holder, factor in self.coefficients.items())
        secret = total % PRIME
        if secret >> (8 * SECRET):
            raise ValueError("the shares do not belong together")
        return secret.to_bytes(SECRET, "big")


def _lagrange(x: int, others: Sequence[int]) -> int:
    above = below = 1
    for other in others:
        if other != x:
            above, below = above * other % PRIME, below * (other - x) % PRIME
    return above * pow(below, -1, PRIME) % PRIME
