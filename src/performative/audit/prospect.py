"""Where retraining leads, from the logs: which clients, which loss, and how large a step may be."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from performative._base.messages import hearing
from performative.audit.client_report import ClientReport, Pooled, restrict, varying
from performative.audit.drivers import Driver, drivers
from performative.audit.effect import why_not
from performative.audit.fit import fit
from performative.audit.log import ClientLog
from performative.audit.outcomes import LABEL
from performative.audit.outlook import Outlook, outlook
from performative.audit.reading import Logs
from performative.audit.scoring import INTERCEPT
from performative.findings import plain

# Number of rows for losses other than the squared loss: over all clients, and the minimum per client.
_ROWS, _FEWEST = 60_000, 300
# Warnings of the solver that the report rephrases: the optimum is local.
_LOCAL = ("risk-falls-far-out", "lower-elsewhere")


class Filled(NamedTuple):
    """The outlook if unobserved labels are assumed to be `name`."""

    name: str
    contraction: float
    limits: tuple[float, float]
    stable: tuple[float, ...] | None


@dataclass(frozen=True, eq=False)
class Prospect:
    """An `Outlook` with its inputs, and the steps that it allows.

    Attributes:
        outlook: None if it was not computed; `reasons` say why
        clients: the clients used, with their weights; left_out: client -> why it was excluded
        drift: "none" or "linear", removed before the current level is estimated
        here: [d] the last deployed model
        J: [d, d] slope of retraining at the stable point
        hessian: [d, d] curvature of the risk that training minimizes, at the stable point; performative_hessian: of
            the performative risk at the optimum
        optimal_is_local: whether the fitted risk falls again far away, so the optimum is local
        risk: performative risk at the optimum; `outlook.excess` is the extra cost of the stable point
        damping: fraction of the way to the retrained model that shrinks every error mode; None if no fraction does
        fillings: if labels of some people are unknown: what was assumed about them, and the outlook under each
            assumption; the limits of the contraction factor then span them all
        rate: the same for plain gradient steps; damped, stepped: the factor by which each then multiplies the error
    """

    outlook: Outlook | None
    reasons: tuple[str, ...]
    clients: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    drift: str = "linear"
    drivers: tuple[Driver, ...] = ()
    here: np.ndarray | None = None
    J: np.ndarray | None = None
    hessian: np.ndarray | None = None
    performative_hessian: np.ndarray | None = None
    risk: float = np.nan
    damping: float | None = None
    damped: float = np.nan
    rate: float | None = None
    stepped: float = np.nan
    optimal_is_local: bool = False
    fillings: tuple[Filled, ...] = ()

    @property
    def relative_cost(self) -> float:
        """Excess risk of the stable point over the least risk, as a share of the latter."""
        return np.nan if self.outlook is None or not self.risk > 0 else self.outlook.excess / self.risk

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "reasons": list(self.reasons),
            "clients": dict(zip(self.clients, self.weights, strict=True)),
            "left_out": dict(self.left_out),
            "drift": self.drift,
            "drivers": plain(self.drivers),
        }
        for name in ("here", "risk", "relative_cost", "damping", "damped", "rate", "stepped", "optimal_is_local"):
            out[name] = plain(getattr(self, name))
        out["fillings"] = [one._asdict() for one in self.fillings]
        if self.outlook is None:
            return out | {"computed": False}
        names = (
            "stable", "optimal", "stable_limits", "contraction", "contraction_limits", "contracts", "deployments",
            "gap", "excess", "slopes", "tolerance",
        )  # fmt: skip
        return out | {"computed": True} | {name: plain(getattr(self.outlook, name)) for name in names}


def look_ahead(
    logs: Logs, reports: Sequence[ClientReport], pooled: Pooled | None, drift: str, tolerance: float, level: float,
    seed: int,
) -> Prospect:  # fmt: skip
    """The outlook over all clients whose response can be fitted, with weights normalized to sum to one.

    It shifts whole rows. So it is not computed if the relation between features and label itself responds to the
    model: for a loss of both, the fit would miss that response.

    Drift is removed as a linear trend unless there is none: walks and waves have no well-defined current level.
    """
    drift = "none" if drift == "none" else "linear"
    if logs.fillings and logs.loss != "squared":
        return _filled(logs, reports, pooled, drift, tolerance, level, seed)
    columns, layout, why = _layout(logs, reports)
    if why:
        return Prospect(None, (why,), drift=drift)
    if logs.loss != "squared" and (changed := _changed_relation(reports, pooled, level)):
        return Prospect(None, (changed,), drift=drift)
    kept: list[tuple[ClientReport, ClientLog]] = []
    left_out = []
    for one in reports:
        log = one.log
        if logs.loss != "squared" and logs.label is None and one.outcomes is not None:
            log = varying(one.outcomes)[0] or log  # labeled rows that represent everyone, as `_layout` has checked
        names = log.columns or ()
        missing = [name for name in columns if name not in names]
        cannot = f"{', '.join(missing)} does not vary" if missing else _cannot_fit(log, drift)
        if cannot:
            left_out.append((one.name, cannot))
        else:
            kept.append((one, restrict(log, [names.index(name) for name in columns])))
    if not kept:
        whys = sorted({cause for _, cause in left_out})
        reason = f"no client's response can be fitted: {'; '.join(cause.rstrip('.') for cause in whys[:3])}."
        return Prospect(None, (reason,), left_out=tuple(left_out), drift=drift)
    p = np.array([one.weight for one, _ in kept])
    p = p / p.sum()
    used = [log for _, log in kept]
    names = tuple(one.name for one, _ in kept)
    if logs.loss != "squared":
        layout["rows"] = min(max(_ROWS // len(used), _FEWEST), 20_000)
    options: dict[str, Any] = {"drift": drift, "tolerance": tolerance, "level": 1 - level, "seed": seed}
    try:
        with hearing(*_LOCAL) as heard:
            found = outlook(used, p, _loss(logs), **options, **layout)
    except ValueError as error:
        return Prospect(None, (str(error),), names, tuple(p.tolist()), tuple(left_out), drift)
    J = found.slopes.sum(axis=0)
    hessian, performative, risk = _curvatures(found, p, used, drift)
    damping, damped = largest_step(np.eye(len(J)) - J)
    rate, stepped = largest_step(hessian @ (np.eye(len(J)) - J))
    return Prospect(
        found, (), names, tuple(p.tolist()), tuple(left_out), drift, drivers(found, names),
        max(used, key=lambda log: log.time[-1]).theta[-1], J, hessian, performative, risk,
        damping, damped, rate, stepped, bool(heard) and found.optimal is not None,
    )  # fmt: skip


def _filled(
    logs: Logs, reports: Sequence[ClientReport], pooled: Pooled | None, drift: str, tolerance: float, level: float,
    seed: int,
) -> Prospect:  # fmt: skip
    """The outlook if labels of some people are unknown: under the stated assumption, and at both extremes.

    A verdict on whether retraining settles is given only if it is the same for all of them.
    """
    found: list[Prospect] = []
    for filled in logs.fillings.values():
        whole = replace(logs, clients=filled, label=LABEL, fillings={}, outcomes={}, selection=None)
        people = [replace(one, log=filled[one.name], outcomes=None) for one in reports if one.name in filled]
        found.append(look_ahead(whole, people, pooled, drift, tolerance, level, seed))
    first = found[0]
    if first.outlook is None:
        return first
    told = tuple(
        Filled(
            name, one.outlook.contraction, one.outlook.contraction_limits,
            None if one.outlook.stable is None else tuple(one.outlook.stable.tolist()),
        )
        for name, one in zip(logs.fillings, found, strict=True)
        if one.outlook is not None
    )  # fmt: skip
    limits = (min(one.limits[0] for one in told), max(one.limits[1] for one in told))
    if len(told) < len(found) or len(found) == 1:  # if an extreme has no outlook, nothing bounds the factor
        limits = (0.0, np.inf)
    return replace(first, outlook=replace(first.outlook, contraction_limits=limits), fillings=told)


def _changed_relation(reports: Sequence[ClientReport], pooled: Pooled | None, level: float) -> str:
    """Says where a covariance of a feature with the label responds to the model; "" if none does."""
    tests = [(f"at {one.name}", one.effect, one.tested) for one in reports if one.reacts]
    if pooled is not None:
        tests.append(("over all clients", pooled.effect, pooled.tested))
    for where, effect, names in tests:
        relations = [j for j, name in enumerate(names) if name.startswith("cov(")]
        p = effect.by_column[relations]
        if len(p) and p.min() <= level:
            return (
                f"{where}, {names[relations[int(p.argmin())]]} responds to the model: the features do not just "
                "shift, their relation to the label changes too. An outlook that only shifts features would be wrong."
            )
    return ""


def largest_step(field: np.ndarray) -> tuple[float | None, float]:
    """A step eta <= 1 / |field| for which theta <- theta - eta field theta shrinks every mode, and the slowest factor.

        |1 - eta g| < 1  iff  eta < 2 Re(g) / |g|^2;      eta = min over eigenvalues g of Re(g) / |g|^2

    Half of the largest step that converges. (None, NaN) if some Re(g) <= 0: no step, however small, converges.
    """
    g = np.linalg.eigvals(field)
    if np.any(g.real <= 0):
        return None, np.nan
    eta = float(np.min(g.real / np.abs(g) ** 2))
    return eta, float(np.abs(1 - eta * g).max())


def _curvatures(
    found: Outlook, p: np.ndarray, logs: Sequence[ClientLog], drift: str
) -> tuple[np.ndarray, np.ndarray | None, float]:
    """Hessians of the decoupled risk at the stable point and of the performative risk at the optimum, and that risk."""
    if found.problem is None:
        M = np.eye(found.slopes.shape[-1]) - found.slopes / p[:, None, None]
        risk = np.nan
        if found.optimal is not None:
            fits = [fit(log, drift, draws=1) for log in logs]
            a = np.stack([f.level - f.B @ f.here for f in fits])
            spread = np.array([(log.spread**2).sum() for log in logs])
            risk = 0.5 * float(p @ (((M @ found.optimal - a) ** 2).sum(axis=-1) + spread))
        return np.eye(M.shape[-1]), np.einsum("i,ijk,ijl->kl", p, M, M), risk
    import jax
    import jax.numpy as jnp

    from performative._engine.risk import decoupled_risk

    with jax.enable_x64(True):
        weights, problem = jnp.asarray(p), found.problem
        stable = jnp.asarray(found.stable)

        def risk_of(x: Any, deployed: Any) -> Any:
            return decoupled_risk(problem, weights, x, deployed)

        seen = jax.jit(jax.hessian(risk_of))(stable, stable)
        if found.optimal is None:
            return np.asarray(seen), None, np.nan
        optimal = jnp.asarray(found.optimal)
        whole = jax.jit(jax.hessian(lambda x: risk_of(x, x)))(optimal)
        return np.asarray(seen), np.asarray(whole), float(jax.jit(risk_of)(optimal, optimal))


def _loss(logs: Logs) -> Any:
    from performative import losses

    if logs.loss == "squared":
        return None
    return losses.logistic(logs.penalty) if logs.loss == "logistic" else losses.ridge(logs.penalty)


def _layout(logs: Logs, reports: Sequence[ClientReport]) -> tuple[tuple[str, ...], dict[str, Any], str]:
    """Columns that the loss needs, their layout in theta, and why these are unknown."""
    parameters = logs.deployments.parameters
    at = {i: name for name, i in logs.parameters.items()}
    if logs.loss == "squared":
        if not at and len(logs.features) == len(parameters) == 1:
            at = {0: logs.features[0]}
        unmatched = [parameters[i] for i in range(len(parameters)) if i not in at]
        if unmatched:
            return (
                (),
                {},
                f"the squared loss needs a feature for each parameter; none is known for {_few(unmatched)}. {_TELL}",
            )
        return tuple(at[i] for i in range(len(parameters))), {}, ""
    if logs.label is None and not (logs.outcomes and logs.selection and logs.selection.coverage >= 1):
        return (), {}, f"the {logs.loss} loss needs labels of everyone, and these logs have no usable ones."
    free = [i for i in range(len(parameters)) if i not in at]
    intercept = next((i for i in free if parameters[i] == INTERCEPT), None)
    strange = [parameters[i] for i in free if i != intercept]
    if strange:
        return (), {}, f"it is unknown which feature {_few(strange)} belongs to. {_TELL}"
    features = tuple(at[i] for i in sorted(at))
    layout = {"features": tuple(range(len(features))), "label": len(features), "intercept": intercept}
    return (*features, LABEL), layout, ""


_TELL = "Specify it under [model] parameters in audit.toml."


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _cannot_fit(log: ClientLog, drift: str) -> str:
    reasons = why_not(log, drift)
    if reasons:
        return " ".join(reasons)
    try:
        fit(log, drift, draws=1)
    except ValueError as error:
        return str(error)
    return ""
