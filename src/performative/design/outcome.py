"""The result of designing an exploration."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from performative.findings import plain


@dataclass(frozen=True)
class Alternative:
    """The same aim with another number of deployments."""

    deployments: int
    size: float
    cost: float | None


@dataclass(frozen=True, eq=False)
class Design:
    """The least exploration that meets the requirements.

    Attributes:
        clients: where to explore
        sizes: how far the deployed model steps from theta at each client, in units of a parameter; `size` the largest
        deployments: how many, T
        rows: rows that these clients collect under one deployment
        parameters: those explored; column: the one the design is for, by default the noisiest
        models: [T, d] what to deploy at clients whose step is `size`; signs: [T, m] its steps up and down
        effect: the reaction to detect, column units per unit of a parameter; if a width was requested, the one
            detected with `power`
        power: the probability of detecting it; width: the expected width of the slope's interval at `level`
        audit_power: the probability that `pf.audit.effect_test`, which also allows for smooth drift, detects it (from
            simulated deployments, up to 64 of them; None beyond)
        cost: deployed loss added over all deployments (weighted by clients' p_i); None if unknown
        degrees: of freedom of the interval
        alternatives: shorter and longer designs
    """

    clients: tuple[str, ...]
    sizes: dict[str, float]
    deployments: int
    rows: int
    parameters: tuple[str, ...]
    column: str
    theta: np.ndarray
    models: np.ndarray
    signs: np.ndarray
    effect: float
    power: float
    width: float
    level: float
    audit_power: float | None
    cost: float | None
    degrees: int
    drift: str
    each: bool
    asked: str
    alternatives: tuple[Alternative, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> float:
        """The largest step."""
        return max(self.sizes.values())

    @property
    def cost_each(self) -> float | None:
        """Deployed loss added by one deployment, on average."""
        return None if self.cost is None else self.cost / self.deployments

    def to_dict(self) -> dict[str, Any]:
        """For strict JSON."""
        told = {one.name: plain(getattr(self, one.name)) for one in fields(self) if one.name != "alternatives"}
        others = [plain(vars(one)) for one in self.alternatives]
        return {**told, "size": self.size, "cost_each": plain(self.cost_each), "alternatives": others}

    def __str__(self) -> str:
        many = f"{len(self.clients)} clients" if len(self.clients) > 1 else self.clients[0]
        names = ", ".join(self.parameters[:4]) + (" ..." if len(self.parameters) > 4 else "")
        each = "each client's slope" if self.each and len(self.clients) > 1 else "the slope"
        lines = [
            f"Deploy {self.deployments} models at {many}, theta plus or minus {self.size:.3g} in {names}: "
            f"{self.rows * self.deployments:,} rows.",
            f"A reaction of {self.effect:.3g} (of {self.column} per unit) is detected with power {self.power:.1%}, "
            f"and {self.level:.0%} intervals of {each} are {self.width:.3g} wide on average.",
            "Its cost in deployed loss is unknown."
            if self.cost is None
            else f"It adds {self.cost:.3g} to the deployed loss, {self.cost_each:.3g} per deployment.",
        ]
        if self.audit_power is not None:
            told = f"`performative audit`, which allows for smooth drift, detects it with power {self.audit_power:.0%}."
            lines.insert(2, told)
        if len(self.clients) > 1:
            at = ", ".join(f"{name} {size:.3g}" for name, size in list(self.sizes.items())[:6])
            lines.append(f"Clients: {at}{' ...' if len(self.clients) > 6 else ''}.")
        lines += [f"Or {one.deployments} deployments of size {one.size:.3g}." for one in self.alternatives]
        return "\n".join([*lines, *self.notes])
