"""Epsilon from numbers, and numbers from epsilon."""

import math
from typing import Any

from performative.arguments import checked
from performative.batches import AbstractBatch
from performative.participation import AbstractParticipation, Full, SchemeTwo
from performative.privacy.accounting import (
    Everyone,
    Release,
    Spending,
    WithoutReplacement,
    calibrate_noise,
    spending,
)
from performative.privacy.known_parts import Releases, Uncertified, releases_of


@checked
def spent(
    noise_multiplier: float,
    steps: int,
    delta: float,
    *,
    batch: AbstractBatch | None = None,
    rows: int | None = None,
    participation: AbstractParticipation | None = None,
    clients: int | None = None,
) -> Spending:
    """Epsilon of `steps` clipped sums with noise of `noise_multiplier` clips each.

    batch, rows:            for examples: the sampler that a step really uses, and the rows of the table
    participation, clients: for clients: the scheme that a round really uses, and how many clients there are
    Neither: everyone is in every step. The neighbour relation is the sampler's: one row added or removed for
    `Poisson`, one replaced for the others.
    """
    each = _sampled(batch, rows, participation, clients, noise_multiplier)
    return spending(Release(each.noise_multiplier, math.ceil(steps * each.each), each.sampling), delta)


@checked
def calibrate(
    epsilon: float,
    delta: float,
    steps: int,
    *,
    batch: AbstractBatch | None = None,
    rows: int | None = None,
    participation: AbstractParticipation | None = None,
    clients: int | None = None,
) -> float:
    """The least noise multiplier that keeps `steps` steps within (epsilon, delta); arguments as in `spent`."""
    each = _sampled(batch, rows, participation, clients, 1.0)
    noise = calibrate_noise(epsilon, delta, math.ceil(steps * each.each), each.sampling)
    return noise / each.noise_multiplier


def _sampled(
    batch: AbstractBatch | None,
    rows: int | None,
    participation: AbstractParticipation | None,
    clients: int | None,
    noise_multiplier: Any,
) -> Releases:
    if batch is not None and participation is not None:
        raise ValueError("give batch= and rows= for examples, or participation= and clients= for clients, not both.")
    try:
        if participation is None:
            return releases_of(batch, rows, noise_multiplier)
        if clients is None:
            raise ValueError(f"clients: how many are there for {type(participation).__name__} to choose from?")
        if isinstance(participation, SchemeTwo) and participation.k < clients:
            return Releases(noise_multiplier, WithoutReplacement(participation.k, clients))
        if isinstance(participation, (Full, SchemeTwo)):
            return Releases(noise_multiplier, Everyone())
        raise Uncertified(f"how {type(participation).__name__} chooses clients is not known to the accountant")
    except Uncertified as reason:
        raise ValueError(f"{reason}.") from None
