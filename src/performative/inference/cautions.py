"""What speaks against an interval for the stable point, as far as a history shows."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from performative.facts import AbstractPart
from performative.inference.series import Recorded

# Clients whose mean weight is off by more than this share, and by this many standard errors, were not drawn fairly.
_UNFAIR, _ERRORS = 0.01, 5.0
_SLOTS = ("estimator", "channel", "aggregator", "sharing")


def doubts_of(history: Recorded, corrected: bool = False) -> list[str]:
    """In words, why the run may settle away from the stable point, or not at all.

    `corrected`: the interval already accounts for local steps and a decaying rate.
    """
    config = history.meta.get("config") or {}
    found = list(_of_fate(history))
    found += [text for slot in _SLOTS for text in _of_slot(slot, config.get(slot))]
    deploy = config.get("deploy") or {}
    if not deploy.get("each_step", True) and deploy.get("period") == 0:
        found.append(
            "models were never deployed: the run converges to the best model for its initial data, not to the stable "
            "point."
        )
    if not corrected:
        found += _of_steps(config, len(history.weights))
    return found + list(_of_weights(history))


def _of_fate(history: Recorded) -> Iterator[str]:
    bad = int(np.sum(np.asarray(history.stopped_at) >= 0))
    if bad:
        yield f"{bad} of {len(history.stopped_at)} repeats diverged; they have no interval."
    if "failed" in history.meta:
        yield f"the run failed: {history.meta['failed']}."


def _of_slot(slot: str, config: Any) -> Iterator[str]:
    if not isinstance(config, dict):
        return
    inside = list(_parts(config))
    name = config["part"]
    if any(one.get("clip") is not None or one.get("memory_clip") is not None for one in inside):
        yield (
            f"{name} clips: the run converges to where clipped {'updates' if slot == 'channel' else 'gradients'} "
            "cancel, which is the stable point only if the clipped part is symmetric. The interval is for where it "
            "settles."
        )
    elif any(_fact(one["part"], "learns_reaction") for one in inside):
        yield f"{name} learns people's reaction, so the run converges to the optimal point, not to the stable one."
    elif slot == "aggregator" and not _fact(name, "uses_sums_only") and not _fact(name, "is_plain"):
        yield f"{name} is not a weighted mean of updates: if clients differ, the run settles elsewhere."
    elif not _fact(name, "is_plain"):
        yield f"{name}: a run with this {slot} is not known to settle at the stable point."


def _of_steps(config: dict[str, Any], clients: int) -> Iterator[str]:
    steady = _fact((config.get("rate") or {}).get("part", ""), "is_constant") if _is_part(config.get("rate")) else False
    if config and not steady:
        yield (
            "the rate is not known to be constant: under a decaying rate batches of records are correlated over longer "
            "and longer times, and the interval is too narrow. Pass problem and algorithm."
        )
    if config.get("local_steps", 1) > 1 and clients > 1:
        yield (
            f"{config['local_steps']} local steps: if clients differ, rounds settle away from the stable point by "
            "an amount proportional to the rate. Pass problem and algorithm to correct for it."
        )


def _of_weights(history: Recorded) -> Iterator[str]:
    """Whether clients participated as often as their weights say."""
    heard, p = history.participation, np.asarray(history.weights, np.float64)
    if heard is None:
        return
    rounds = float(history.rounds[-1]) * len(heard)
    off = np.abs(np.mean(np.asarray(heard, np.float64), axis=0) - p) / np.maximum(p, 1e-300)
    worst = int(np.argmax(np.where(p > 0, off - _ERRORS / np.sqrt(np.maximum(p * rounds, 1e-300)), -np.inf)))
    if p[worst] > 0 and off[worst] > max(_UNFAIR, _ERRORS / np.sqrt(p[worst] * rounds)):
        yield (
            f"client {worst} had a mean weight of {np.mean(heard[:, worst]):.3g} instead of {p[worst]:.3g}: the run "
            "converges to the stable point for other weights."
        )


def _is_part(config: Any) -> bool:
    return isinstance(config, dict) and "part" in config


def _parts(config: Any) -> Iterator[dict[str, Any]]:
    """The described part, and those inside it."""
    if _is_part(config):
        yield config
    for held in config.values() if isinstance(config, dict) else config if isinstance(config, list) else ():
        yield from _parts(held)


def _fact(name: str, fact: str, above: Any = AbstractPart) -> Any:
    """The fact that the class of that name declares; False if there is no such class or declaration."""
    for kind in above.__subclasses__():
        if kind.__name__ == name and fact in vars(kind):
            return vars(kind)[fact]
        found = _fact(name, fact, kind)
        if found:
            return found
    return False
