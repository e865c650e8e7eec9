"""Compute epsilon from a noise multiplier, and a noise multiplier from epsilon."""

import dataclasses
import math
from typing import Any

from performative._base.arguments import checked
from performative.batches import AbstractBatch
from performative.facts import Uncertified, declared, relying
from performative.participation import AbstractParticipation
from performative.privacy.accounting import Release, Spending, calibrate_noise, spending
from performative.privacy.releases import Releases, releases_by, releases_of


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

    Args:
        batch, rows: for examples: the sampler that a step actually uses, and the rows of the table
        participation, clients: for clients: the scheme that a round actually uses, and the number of clients

    Without either, everyone is in every step. The sampler determines the neighbor relation: one row added or removed
    for `Poisson`, one replaced for the others.
    """
    with relying() as heard:
        each = _sampled(batch, rows, participation, clients, noise_multiplier)
    found = spending(Release(each.noise_multiplier, math.ceil(steps * each.each), each.sampling), delta)
    if not heard:
        return found
    word = f"on the author's word: {', '.join(heard)}"
    return dataclasses.replace(found, note="; ".join(note for note in (found.note, word) if note))


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
    """The smallest noise multiplier that keeps `steps` steps within (epsilon, delta); arguments as in `spent`."""
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
        raise ValueError("pass batch= and rows= for examples, or participation= and clients= for clients, not both.")
    try:
        if participation is None:
            return releases_of(batch, rows, noise_multiplier)
        if clients is None:
            raise ValueError(f"clients: pass the number of clients that {type(participation).__name__} selects from.")
        law = declared(participation, "sampling", clients)
        if law is None:
            raise Uncertified(f"how {type(participation).__name__} selects clients is not known to the accountant")
        return releases_by(law, noise_multiplier)
    except Uncertified as reason:
        raise ValueError(f"{reason}.") from None
