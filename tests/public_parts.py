"""Every part that the package exports, found by walking from `pf` along `__all__`.

A part is a class that is derived from `AbstractPart` and is not abstract. Its slot is the one whose base class it has.
Nothing here names a part: a new one is found as soon as the module or folder of its slot exports it.
"""

import inspect
from collections.abc import Iterator
from types import ModuleType

import performative as pf
from performative import domains
from performative.deploy import Deployment
from performative.estimators.base import AbstractEstimator
from performative.facts import AbstractPart
from performative.losses import AbstractLoss

# Slots of an algorithm or a problem, then what parts in these slots hold.
BASES = {
    "population": pf.populations.AbstractPopulation,
    "loss": AbstractLoss,
    "domain": domains.AbstractDomain,
    "batch": pf.batches.AbstractBatch,
    "estimator": AbstractEstimator,
    "participation": pf.participation.AbstractParticipation,
    "channel": pf.channels.AbstractChannel,
    "aggregator": pf.aggregators.AbstractAggregator,
    "sharing": pf.sharing.AbstractSharing,
    "rate": pf.schedules.AbstractSchedule,
    "optimizer": pf.optimizers.AbstractOptimizer,
    "family": pf.families.AbstractFamily,
    "latency": pf.participation.AbstractLatency,
    "staying": pf.participation.AbstractStaying,
    "availability": pf.participation.AbstractAvailability,
    "share": pf.populations.shares.AbstractShare,
    "shift": pf.populations.shifts.AbstractShift,
    "path": pf.paths.AbstractPath,
}


def is_part(thing: object) -> bool:
    """Whether it is a class that one can have a part of. `Deployment` is what every rule of `deploy` becomes."""
    if not (inspect.isclass(thing) and issubclass(thing, AbstractPart)) or thing is Deployment:
        return False
    return not inspect.isabstract(thing) and not thing.__name__.startswith("Abstract")


def exported(module: ModuleType = pf, name: str = "pf") -> Iterator[tuple[str, object]]:
    """All that a module and the modules it names export, as ("pf.batches.Fixed", class); the shortest names first."""
    inside = []
    for word in module.__all__:
        thing = getattr(module, word)
        if not inspect.ismodule(thing):
            yield f"{name}.{word}", thing
        elif getattr(thing, "__all__", None):
            inside.append((thing, f"{name}.{word}"))
    for below in inside:
        yield from exported(*below)


def public_parts(module: ModuleType = pf, name: str = "pf") -> dict[str, type]:
    """{"pf.Fixed": class, ...}, each under its shortest name."""
    found: dict[type, str] = {}
    for path, thing in exported(module, name):
        if is_part(thing):
            found.setdefault(thing, path)
    return {path: kind for kind, path in found.items()}


def slot_of(kind: type) -> str | None:
    """Where it goes; None for what has no base class of a slot and must say what it is put into."""
    if kind.__module__ == Deployment.__module__:
        return "deploy"
    return next((slot for slot, base in BASES.items() if issubclass(kind, base)), None)
