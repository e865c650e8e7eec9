"""A run that each part can be put into: what its constructor lets through must run, or be refused by the run."""

_RUN = "pf.run(pf.Problem({loss}, {population}), pf.p_fedavg({parts}), 2, record=pf.Record(risks=False){rest})"


def _run(loss="pf.losses.squared", population="G", parts="rate=0.1", rest=""):
    return _RUN.format(loss=loss, population=population, parts=parts, rest=rest)


_TABLE = {"loss": "pf.losses.logistic(0.1)", "population": "pf.populations.Strategic(X, Y, 0.1)"}
_LABELLED = {"loss": "pf.losses.logistic(0.1)", "rest": ", theta=np.zeros(2)"}
_MIXED = "pf.populations.Mixture((G, G), {})"
_SLOTS = {
    "pf.populations.Regression": _run("pf.losses.ridge(0.1)", "{}"),
    "pf.populations.Strategic": _run("pf.losses.logistic(0.1)", "{}"),
    "pf.populations.Classes": _run("pf.losses.logistic(0.1)", "{}"),
    "pf.populations.Static": _run(population="{}", **_LABELLED),
    "pf.populations.Reweighted": _run(population="{}", **_LABELLED),
    "pf.populations.Outliers": _run(population="{}", rest=", theta=0.0"),
    "pf.populations.shares": _run(population=_MIXED),
    "pf.populations.shifts": _run(population="pf.populations.Database(np.ones((3, 4)), shift={})"),
    "pf.populations": _run(population="{}"),
    "pf.losses.Quadratic": _run("{}"),
    "pf.losses.quadratic": _run("{}"),
    "pf.losses.CrossEntropy": _run("{}", "pf.populations.Static(X, Y)", rest=", theta=np.zeros((2, 2))"),
    "pf.losses.cross_entropy": _run("{}", "pf.populations.Static(X, Y)", rest=", theta=np.zeros((2, 2))"),
    "pf.losses": _run("{}", "pf.populations.Strategic(X, Y, 0.1)"),
    "pf.Box": "pf.run(pf.Problem(pf.losses.squared, G, domain={}), A, 2)",
    "pf.Ball": "pf.run(pf.Problem(pf.losses.squared, G, domain={}), A, 2)",
    **dict.fromkeys(
        ("pf.Fixed", "pf.Uniform", "pf.Shuffled", "pf.Poisson", "pf.Whole"), _run(**_TABLE, parts="rate=0.1, batch={}")
    ),
    **dict.fromkeys(
        ("pf.Full", "pf.SchemeOne", "pf.SchemeTwo", "pf.FirstK", "pf.PowerOfChoice", "pf.Cyclic", "pf.Available",
         "pf.LocalWork"), _run(parts="rate=0.1, participation={}")
    ),
    "pf.participation.UniformSteps": _run(parts="rate=0.1, participation=pf.LocalWork(pf.Full(), {})"),
    "pf.participation.AdaComm": _run(parts="rate=0.1, participation=pf.LocalWork(pf.Full(), {})"),
    "pf.participation.DayNight": _run(parts="rate=0.1, participation=pf.Available({})"),
    "pf.participation": _run(parts="rate=0.1, participation=pf.FirstK(2, {})"),
    "pf.estimators.ControlVariate": _run(parts="rate=0.1, estimator={}, aggregator=pf.aggregators.Scaffold()"),
    "pf.estimators": _run(parts="rate=0.1, estimator={}, batch=pf.Fixed(16)"),
    "pf.families.Location": _run(parts="rate=0.1, batch=pf.Fixed(16), estimator=pf.estimators.Performative(5, {})"),
    "pf.families.Slope": _run(
        "pf.losses.ridge(0.1)", "pf.populations.Regression(np.zeros(3), 1.0, np.ones(3), 0.1, 1.0)",
        parts="rate=0.1, batch=pf.Fixed(16), estimator=pf.estimators.Performative(5, {})",
    ),
    "pf.families.ClassLocation": _run(
        **_TABLE, parts="rate=0.1, batch=pf.Fixed(16), estimator=pf.estimators.Performative(5, {})"
    ),
    "pf.families.Proportions": _run(
        population=_MIXED.format("pf.populations.shares.Linear([0.5, 0.5], [0.1, -0.1])"),
        parts="rate=0.1, batch=pf.Fixed(16), estimator=pf.estimators.Performative(5, {})",
    ),
    "pf.optimisers": _run(
        parts="rate=0.1, aggregator=pf.aggregators.ServerOpt(pf.aggregators.Mean(), {0}), "
        "estimator=pf.estimators.Preconditioned(pf.estimators.Minibatch(), {0})"
    ),
    "pf.channels": _run(
        population="pf.populations.Gaussian(np.ones((3, 2)), 0.5, 1.0)", parts="rate=0.1, channel={}"
    ),
    "pf.aggregators.Scaffold": "pf.run(P, pf.scaffold(rate=0.1, aggregator={}), 2)",
    "pf.aggregators.PooledJacobian": "pf.run(P, pf.pofl(0.1, window=5, batch=pf.Fixed(8), aggregator={}), 2)",
    "pf.aggregators": _run(parts="rate=0.1, aggregator={}"),
    "pf.schedules": _run(parts="rate={}"),
    "pf.Every": _run(parts="rate=0.1, deploy={}"),
    "pf.Clock": "pf.run(P, A, 2, clock={})",
    "pf.Record": "pf.run(P, A, 2, record={})",
    "pf.Metric": "pf.run(P, A, 2, record=pf.Record(risks=False, metrics={{'mine': {}}}))",
    "pf.callbacks": "pf.run(P, A, 2, callbacks=[{}])",
    "pf.Privacy": "pf.run(TABLE, PRIVATE, 2, privacy={}, record=pf.Record(risks=False))",
    "pf.Problem.from_frame": "pf.run({}, A, 2)",
    "pf.Problem": "pf.run({}, A, 2)",
    "pf.cases": "pf.run({}, A, 2)",
}  # fmt: skip
# Records of parts run by themselves.
_RECIPES = "pf.run(P, {}, 2)"


def use_of(name: str) -> str | None:
    """The run around a call of this name, None where it has none."""
    if name in ("pf.Cost", "pf.cases.credit_table", "pf.cases.images", "pf.schedules.theorem"):
        return None
    found = [key for key in _SLOTS if name == key or name.startswith(f"{key}.")]
    if found:
        return _SLOTS[max(found, key=len)]
    recipe = name.count(".") == 1 and (name[3].islower() or name == "pf.Algorithm") and name != "pf.estimate_memory"
    return _RECIPES if recipe else None
