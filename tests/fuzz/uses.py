"""A run that each part can be put into: what its constructor lets through must run, or be refused by the run."""

from calls import EXAMPLES, NAMES
from public_parts import public_parts, slot_of

_RUN = "pf.run(pf.Problem({loss}, {population}), pf.p_fedavg({parts}), 2, record=pf.Record(risks=False){rest})"
_TABLE = ("pf.losses.logistic(0.1)", "pf.populations.Strategic(X, Y, 0.1)")
# Loss and population for the parts of a slot that ask for no others.
_PROBLEMS = {"batch": _TABLE, "channel": ("pf.losses.squared", "pf.populations.Gaussian(np.ones((N, 2)), 0.5, 1.0)")}
_COMPANY = {"estimator": {"batch": "pf.Fixed(16)"}, "aggregator": {"batch": "pf.Fixed(16)"}}
_OTHERS = {
    "pf.losses.quadratic": "pf.losses.Quadratic",
    "pf.losses.ridge": "pf.losses.Ridge",
    "pf.losses.revenue": "pf.losses.Revenue",
    "pf.losses.logistic": "pf.losses.Logistic",
    "pf.losses.cross_entropy": "pf.losses.CrossEntropy",
    "pf.optimizers.as_optimizer": "pf.optimizers.Momentum",
    "pf.schedules.constant": "pf.schedules.Constant",
    "pf.schedules.harmonic": "pf.schedules.Harmonic",
}
_SLOTS = {
    "pf.Clock": "pf.run(P, A, 2, clock={})",
    "pf.Record": "pf.run(P, A, 2, record={})",
    "pf.Metric": "pf.run(P, A, 2, record=pf.Record(risks=False, metrics={{'mine': {}}}))",
    "pf.callbacks": "pf.run(P, A, 2, callbacks=[{}])",
    "pf.Privacy": "pf.run(TABLE, PRIVATE, 2, privacy={}, record=pf.Record(risks=False))",
    "pf.Problem.from_frame": "pf.run({}, A, 2)",
    "pf.Problem": "pf.run({}, A, 2)",
    "pf.Game": "pf.run({}, A, 2)",
    "pf.cases": "pf.run({}, A, 2)",
}
# Records of parts run by themselves.
_RECIPES = "pf.run(P, {}, 2)"


def _slot_and_text(example) -> tuple[str, str]:
    """The slot that the part fills, or what holds it, and the text around it."""
    holder = example.holders[0]
    if holder == "{}":
        return example.slot, "{}"
    kind = type(eval(holder.format(example.call), NAMES))
    return next(slot_of(one) for one in public_parts().values() if one is kind), holder


def run_around(name: str) -> str:
    """The run around a part, with the problem and the company that its example asks for."""
    example = EXAMPLES[name]
    slot, text = _slot_and_text(example)
    loss, population = _PROBLEMS.get(slot, ("pf.losses.squared", "G"))
    if example.loss or example.population:
        loss, population = example.loss or "pf.losses.squared", example.population or "G"
    parts = {"rate": "0.1", **_COMPANY.get(slot, {}), **example.beside}
    if slot == "population":
        population = text
    elif slot == "loss":
        loss = text
    elif slot != "domain":
        parts[slot] = text
    rest = f", theta={example.theta}" if example.theta else ""
    run = _RUN.format(
        loss=loss, population=population, parts=", ".join(f"{k}={v}" for k, v in parts.items()), rest=rest
    )
    return run.replace("), pf.p_fedavg", f", domain={text}), pf.p_fedavg", 1) if slot == "domain" else run


def use_of(name: str) -> str | None:
    """The run around a call of this name, None where it has none."""
    if name in ("pf.Cost", "pf.cases.credit_table", "pf.cases.images", "pf.schedules.theorem"):
        return None
    name = _OTHERS.get(name, name)
    if name in EXAMPLES:
        return run_around(name)
    found = [key for key in _SLOTS if name == key or name.startswith(f"{key}.")]
    if found:
        return _SLOTS[max(found, key=len)]
    recipe = name.count(".") == 1 and (name[3].islower() or name == "pf.Algorithm") and name != "pf.estimate_memory"
    return _RECIPES if recipe else None
