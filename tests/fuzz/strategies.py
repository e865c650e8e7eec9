"""Expressions that a user might write: problems, algorithms and runs of all parts, half of them with a slip.

A strategy gives text. What fails can be pasted into a shell as it stands, with the names of `calls.SCOPE`.
"""

import re
from pathlib import Path

from calls import ANALYSES, CALLS, WRONG, parameters, replaced
from files import files
from hypothesis import strategies as st
from part_examples import first_examples
from uses import use_of

# How many more values are sound before the next is wrong; None where all are.
_SLIP = [None]


def pick(*texts):
    return st.sampled_from(texts)


def unlisted(slot):
    """Examples of the parts of a slot that nothing is said about here: they are used with sound arguments."""
    listed = set(re.findall(r"[A-Z]\w+", Path(__file__).read_text()))
    return [example for example in first_examples(slot) if example.word not in listed]


def others(slot):
    """Strategies of their calls."""
    return [pick(example.call) for example in unlisted(slot)]


@st.composite
def slip(draw):
    """Every second expression has one wrong value, anywhere among its first thirty."""
    _SLIP[0] = draw(st.sampled_from([None] * 30 + list(range(30))))


@st.composite
def value(draw, texts):
    """A sound value; a wrong one where the slip is due: one of `WRONG`, or of those marked "!"."""
    left = _SLIP[0]
    _SLIP[0] = left if left is None else left - 1
    listed = not isinstance(texts, st.SearchStrategy)
    if left == 0:
        return draw(pick(*WRONG, *(t[1:] for t in texts if t[0] == "!")) if listed else pick(*WRONG))
    return draw(pick(*(t for t in texts if t[0] != "!")) if listed else texts)


@st.composite
def call(draw, name, some=(), **arguments):
    """name(argument=value, ...); of the arguments in `some` about one in three is given."""
    given = [k for k in arguments if k not in some or draw(pick(True, False, False))]
    return f"{name}({', '.join(f'{k}={draw(value(arguments[k]))}' for k in given)})"


NUMBERS = ("0.1", "0.5", "1.0", "0.0", "2", "np.float32(0.5)")
SMALL = ("1", "2", "3")
P = "pf.populations."
GAUSSIANS = {
    "()": (f"{P}Gaussian(np.arange(3.0), 0.5, 1.0)", f"{P}Gaussian([0.0, 1.0, 2.0], [0.1, 0.2, 0.3], [1.0, 2.0, 0.0])",
           f"{P}Pricing(np.ones(3), 0.5, 1.0)", f"{P}Database(np.ones((3, 4)), {P}shifts.Linear(0.5), 0.1)",
           f"{P}Database([[1.0, 2.0], [1.0], [3.0]])", f"{P}Outliers(np.zeros(3), 1.0, 'laplace')",
           "pf.Problem(pf.losses.squared, G).pooled().population"),
    "(2,)": (f"{P}Gaussian(np.ones((3, 2)), 0.5, 1.0)", f"{P}Gaussian(np.ones((3, 2)), np.ones((3, 2, 2)) / 9, 1.0)",
             f"{P}Pricing(np.ones((3, 2)), np.ones(3), 1.0)", f"{P}Outliers(np.zeros((3, 2)), 1.0, 'cauchy')",
             f"{P}Database(np.ones((3, 4, 2)), {P}shifts.Linear(np.ones((3, 2))))"),
}  # fmt: skip
SHARES = {
    "()": (f"{P}shares.Constant([0.5, 0.5])", f"{P}shares.Linear([0.5, 0.5], [0.1, -0.1])",
           f"{P}shares.Budgets([0.1, 0.2], 1.0)", f"{P}shares.Losses([0.1, 0.2], 1.0, 1.0)"),
    "(2,)": (f"{P}shares.Constant(np.full((3, 2), 0.5))", f"{P}shares.Budgets(np.ones((3, 2, 2)), 9.0)"),
}  # fmt: skip
TABLES = (
    f"{P}Strategic(X, Y, 0.1)", f"{P}Strategic(X, Y, 0.1, response='evade')", f"{P}Strategic(X, Y, [0.1, 0.2, 0.3])",
    f"{P}Strategic(X, Y, 0.1, features=[1], count=[8, 5, 3])", f"{P}Static(X, Y)", f"{P}Static(X, Y, [8, 5, 3])",
    f"{P}Reweighted(X, Y, 0.5)", f"{P}Reweighted(X, Y, [0.1, 0.2, 0.3], by='accuracy')",
    f"{P}Classes(np.ones((2, 2)), 0.5, np.ones(3))", f"{P}Strategic(X, Y, np.ones((3, 2)))",
)  # fmt: skip
PATHS = (
    "pf.paths.Linear(0.1)", "pf.paths.Linear([0.1, 0.0, -0.1])", "pf.paths.Periodic(0.5, [5.0, 6.0, 7.0])",
    "pf.paths.Jump(2.0, 1.0)", "pf.paths.RandomWalk(0.1)", "pf.paths.Linear(0.1) + pf.paths.Jump(1.0, 2.0)",
    "!pf.paths.Linear([0.1, 0.2])", "!0.1",
)  # fmt: skip
LINES = (f"{P}Regression(np.ones(3), 1.0, np.ones(3), 0.1, 1.0)",)
PLANES = (f"{P}Regression(np.ones((3, 2)), np.ones((3, 2)), np.ones((3, 2)), 0.1, 1.0)",)


@st.composite
def wrapped(draw, inside, outliers, shares=()):
    """A population, perhaps contaminated, sluggish, drifting or a mixture."""
    population = draw(pick(*inside))
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.integers(0, 3))
        if kind == 0:
            population = f"{P}Sluggish({population}, {draw(value(('0.5', '1.0', '[0.1, 0.5, 1.0]')))})"
        elif kind == 3:
            population = f"{P}Drifting({population}, {draw(value(PATHS))})"
        elif kind == 1:
            fraction = draw(value(("0.1", "0.0", "[0.0, 0.1, 0.2]")))
            population = f"{P}Contaminated({population}, {fraction}, {draw(pick(*outliers))})"
        elif shares:
            population = f"{P}Mixture([{population}, {draw(pick(*inside))}], {draw(pick(*shares))})"
    return population


WEIGHTS = ("None", "None", "[0.2, 0.3, 0.5]", "np.full(3, 1 / 3)", "[0.5, 0.5, 0.0]", "![0.5, 0.5]", "![1, 1, 1]")
STARTS = {
    "()": ("0.0", "None", "0.5", "np.float32(1.0)", "jnp.zeros(())", "!np.zeros(2)", "![0.0]", "!{'a': 0.0}"),
    "(2,)": ("np.zeros(2)", "None", "[0.1, 0.2]", "jnp.zeros(2)", "!np.zeros((2, 1))", "!0.0", "(0.1, 0.2)"),
    "net": ("NET[0]", "NET[0]", "!np.zeros(2)", "!NET"),
}
DOMAINS = {
    "()": ("None", "None", "pf.Box(-5.0, 5.0)", "pf.Ball(5.0)", "!pf.Box([-1.0, -1.0], 1.0)", "!pf.Box(1.0, 2.0)"),
    "(2,)": ("None", "None", "pf.Box(-5.0, 5.0)", "pf.Ball(5.0)", "pf.Box([-1.0, -1.0], [1.0, 2.0])"),
    "net": ("None", "pf.Ball(50.0)", "pf.Box(-50.0, 50.0)", "!pf.Box([-1.0, -1.0], 1.0)"),
}
LOSSES = {
    "()": ("pf.losses.squared", "pf.losses.squared", "pf.losses.negative_revenue", "pf.losses.quadratic(1.0)"),
    "(2,)": ("pf.losses.squared", "pf.losses.squared", "pf.losses.negative_revenue", "pf.losses.quadratic(2)"),
    "table": ("pf.losses.logistic(0.1)", "pf.losses.logistic(0.1, [1.0, 2.0], 0)", "pf.losses.ridge(0.1)",
              "pf.losses.zero_one", "pf.losses.squared"),
}  # fmt: skip


@st.composite
def worlds(draw):
    """A problem, and a start for it."""
    new = unlisted("population")
    kind = draw(pick("()", "()", "(2,)", "(2,)", "table", "table", "line", "plane", "net", *new))
    if kind in new:
        return f"pf.Problem({kind.loss or 'pf.losses.squared'}, {kind.call})", str(kind.theta)
    shape = {"table": "(2,)", "line": "()", "plane": "(2,)"}.get(kind, kind)
    if kind in GAUSSIANS:
        population = draw(wrapped(GAUSSIANS[kind], GAUSSIANS[kind], SHARES[kind]))
        loss = draw(value(LOSSES[kind]))
    elif kind == "net":
        population = draw(wrapped(TABLES[4:8], TABLES[4:6]))
        loss = draw(value(("pf.losses.cross_entropy(NET[1])",)))
    elif kind == "table":
        population, loss = draw(wrapped(TABLES, TABLES)), draw(value(LOSSES["table"]))
    else:
        inside = LINES if kind == "line" else PLANES
        population, loss = draw(wrapped(inside, inside)), draw(value(("pf.losses.ridge(0.1)", "pf.losses.squared")))
    weights, domain = draw(value(WEIGHTS)), draw(value(DOMAINS[shape]))
    problem = f"pf.Problem({loss}, {population}, weights={weights}, domain={domain})"
    return problem, draw(value(STARTS[shape]))


BATCHES = st.one_of(
    call("pf.Fixed", n=("1", "4", "16")), call("pf.Uniform", n=("1", "3", "!9")), call("pf.Shuffled", n=("2", "4")),
    call("pf.Poisson", rate=("0.5", "1.0"), n_max=("1", "4", "20")), pick("pf.Whole()"),
    *others("batch"),
)  # fmt: skip
E, MINI = "pf.estimators.", "pf.estimators.Minibatch()"
OPTIMISERS = (
    "pf.optimizers.Momentum(0.5)", "pf.optimizers.Momentum(0.5, nesterov=True)", "pf.optimizers.Adam()",
    "pf.optimizers.Adagrad()", "pf.optimizers.Yogi()", "pf.optimizers.RMSProp()", "optax.scale_by_lion()",
    "!optax.adam(0.1)", "optax.trace(0.9)", *(example.call for example in unlisted("optimizer")),
)  # fmt: skip
INNER = st.one_of(
    pick(MINI), pick(MINI), call(f"{E}Clipped", some=("block",), clip=NUMBERS, noise_multiplier=NUMBERS, block=SMALL),
    call(f"{E}Dice", clip=("1.0",), memory_clip=("10.0",), noise_multiplier=NUMBERS),
    call(f"{E}ClippedModel", some=("lower",), lower=("0.0", "-10.0")),
    call(f"{E}Performative", some=("term", "baseline", "rtol", "reset_after", "family"),
         window=("5", "11", "None", "!2"), term=("'score'", "'pathwise'"), baseline=("True", "False"), rtol=("0.01",),
         reset_after=("None", "3"), family=("None", "pf.families.Location()", "pf.families.ClassLocation()",
                                              "pf.families.Slope()", "pf.families.Proportions(2)")),
    *others("estimator"),
)  # fmt: skip


@st.composite
def estimators(draw):
    part = draw(INNER)
    for _ in range(draw(st.integers(0, 2))):
        outer = draw(st.sampled_from([
            call(f"{E}Filtered", some=("sparse", "passes", "rule"), sparse=("0.02",), passes=SMALL,
                 rule=("'repaired'", "'printed'")),
            call(f"{E}AdaptiveSize", tolerance=("0.1", "1.0")), call(f"{E}Prox", mu=NUMBERS),
            call(f"{E}ControlVariate"),
            call(f"{E}Preconditioned", some=("reset",), tx=OPTIMISERS, reset=("True", "False")),
        ]))  # fmt: skip
        part = draw(outer).replace("(", f"(inner={part}, ", 1).replace(", )", ")")
    return part


A, MEAN = "pf.aggregators.", "pf.aggregators.Mean()"
PLAIN = st.one_of(
    pick(MEAN), pick(MEAN), pick(f"{A}Mean(of='models')"), pick(f"{A}Median()"), pick(f"{A}Varp()"),
    call(f"{A}TrimmedMean", fraction=("0.4", "!0.1", "0.0")), call(f"{A}Krum", byzantine=("0", "!1"), multi=SMALL),
    call(f"{A}ClusterVarp", clusters=("1", "2", "[0, 1, 1]", "![0, 2, 2]", "![0, 1]", "!5")),
    *others("aggregator"),
)  # fmt: skip


@st.composite
def aggregators(draw):
    part = draw(PLAIN)
    for _ in range(draw(st.integers(0, 2))):
        outer = draw(st.sampled_from([
            call(f"{A}Nova", some=("over",), over=("'clients'", "'cohort'")),
            call(f"{A}Extrapolate", some=("cap",), cap=("2.0", "None")), call(f"{A}Scaffold"),
            call(f"{A}PooledJacobian", some=("clusters", "memory"), clusters=("1", "2"), memory=("20", "!1")),
            call(f"{A}ServerOpt", some=("rate",), tx=OPTIMISERS, rate=NUMBERS),
        ]))  # fmt: skip
        part = draw(outer).replace("(", f"(inner={part}, ", 1).replace(", )", ")")
    return part


LATENCIES = ("pf.participation.Exponential()", "pf.participation.LogNormal([1.0, 2.0, 3.0])",
             "pf.participation.UniformLatency(2.0)", "!pf.participation.Exponential([1.0, 2.0])")  # fmt: skip
SCHEMES = st.one_of(
    pick("pf.Full()"), call("pf.SchemeOne", k=("1", "2", "5")), call("pf.SchemeTwo", k=("1", "2", "3", "!4")),
    call("pf.FirstK", k=("1", "2"), latency=LATENCIES),
    call("pf.PowerOfChoice", some=("prefer", "estimate", "samples"), k=("1", "2"), d=("2", "3"),
         prefer=("'high'", "'low'"), estimate=("'exact'", "'batch'", "'last'"), samples=("None", "4")),
    call("pf.Cyclic", some=("k",), groups=("[[0, 1], [2]]", "[0, 1, 1]", "3", "!2", "![[0], [1]]"), k=("1", "None")),
    call("pf.Available", some=("k", "weigh"), k=("1", "2", "None"), weigh=("'unbiased'", "'renormalized'"),
         probability=("0.5", "[0.1, 0.5, 1.0]", "![0.5, 0.5]", "pf.participation.DayNight(4.0, [0.0, 1.0, 2.0])")),
    *others("participation"),
)  # fmt: skip
STEPS = ("[1, 2, 1]", "![2, 2]", "pf.participation.UniformSteps(1, 2)", "pf.participation.AdaComm(2)")
PARTICIPATION = st.one_of(SCHEMES, SCHEMES, call("pf.LocalWork", inner=SCHEMES, steps=STEPS))
CHANNELS = st.one_of(
    pick("pf.channels.Plain()"), pick("pf.channels.Plain()"),
    call("pf.channels.ClippedNoise", clip=NUMBERS, noise_multiplier=NUMBERS),
    call("pf.channels.Sparse", some=("feedback",), k=("1", "5", "0.5"), feedback=("True", "False")),
    call("pf.channels.RandomK", some=("scale",), k=("1", "5", "0.5"), scale=("True", "False")),
    call("pf.channels.Quantized", some=("feedback",), bits=("!2", "4", "8"), feedback=("True", "False")),
    *others("channel"),
)  # fmt: skip
RATES = ("0.1", "0.0", "pf.schedules.harmonic(2.0, 20.0)", "pf.schedules.constant(0.1)", "lambda t: 0.1 / (t + 1)")
RECIPES = {
    "Algorithm": {}, "p_fedavg": {}, "fedavg": {}, "multi_agent_pp": {}, "pg": {"window": ("5", "11")},
    "pofl": {"window": ("5", "11")}, "profl": {"window": ("5", "11"), "tolerance": ("None", "0.1")},
    "pcsgd": {"clip": NUMBERS, "noise_multiplier": NUMBERS},
    "dicesgd": {"clip": ("1.0",), "memory_clip": ("10.0",), "noise_multiplier": NUMBERS}, "fedprox": {"mu": NUMBERS},
    "scaffold": {}, "fednova": {}, "fedexp": {"cap": ("None", "2.0")}, "fedvarp": {},
    "cluster_fedvarp": {"clusters": ("1", "2", "[0, 1, 1]")}, "fedavgm": {"momentum": ("0.0", "0.5", "!1.0")},
    "fedadam": {}, "fedyogi": {}, "qffl": {"q": ("0.0", "2.0", "!-1.0")}, "afl": {"step": ("0.0", "0.5", "!-1.0")},
    "snapshots": {"k": SMALL, "weights": ("None", "![1.0, -1.0]"), "rows": ("2",)},
    "two_point": {"radius": ("0.5", "!0.0")}, "one_point": {"radius": ("0.5", "!-1.0")},
    "plug_in": {"radius": ("0.5",), "deployments": ("4", "!0")},
    "no_regret": {}, "robust": {"radius": ("0.0", "0.1", "!-1.0"), "divergence": ("'kl'", "'chi2'", "!'tv'")},
}  # fmt: skip
SLOTS = {
    "local_steps": SMALL, "batch": BATCHES, "estimator": estimators(), "participation": PARTICIPATION,
    "channel": CHANNELS, "aggregator": aggregators(), "absent": ("'frozen'", "'moves'"),
    "deploy": ("'step'", "'round'", "'never'", "pf.Every(2)", *(example.call for example in unlisted("deploy"))),
}  # fmt: skip


@st.composite
def algorithms(draw):
    recipe = draw(st.sampled_from(sorted(RECIPES)))
    own = {name: value(texts) for name, texts in RECIPES[recipe].items()}
    return draw(call(f"pf.{recipe}", some=tuple(SLOTS), rate=RATES, **own, **SLOTS))


OPTIONS = {
    "seed": ("0", "1", "2**32 - 1", "!2**32", "np.int64(3)"), "repeats": SMALL,
    "record": (
        "pf.Record(every=2)", "pf.Record(theta='last')", "pf.Record(risks=False)", "pf.Record(risks=3, every=4)",
        "pf.Record(consensus=False)", "pf.Record(limit=10)", "pf.Record(limit=np.float64(3.0))",
        "!pf.Record(stable=0.0)",
        "!pf.Record(stable=np.zeros(2))", "!pf.Record(stable='solve')", "!pf.Record(optimal=np.zeros(2))",
        "pf.Record(clients=('update_norm', 'loss'), cohorts=True)",
    ),
    "clock": ("pf.Clock()", "pf.Clock([1.0, 2.0, 3.0], 0.5)", "!pf.Clock([1.0, 2.0])"),
    "dtype": ("'float32'", "'float64'", "'bfloat16'", "!'float16'", "!np.float32"),
    "executor": ("'dense'", "'gather'", "'loop'", "'sharded'", "!'fast'"), "clients_at_once": ("1", "2", "None"),
    "callbacks": ("[]", "[pf.callbacks.Progress(False)]"),
    "privacy": ("None", "pf.Privacy(1e-3)", "pf.Privacy(1e-3, epsilon=1.0)", "pf.Privacy(1e-3, unit='client')"),
}  # fmt: skip


@st.composite
def runs(draw):
    """A whole run."""
    draw(slip())
    problem, theta = draw(worlds())
    options = draw(call("", some=tuple(OPTIONS), **{name: texts for name, texts in OPTIONS.items()}))[1:-1]
    tail = f", {options}" if options else ""
    return f"pf.run({problem}, {draw(algorithms())}, rounds={draw(value(SMALL))}, theta={theta}{tail})"


OVER = (
    "{'rate': [0.1, 0.2]}", "{'local_steps': [1, 2]}", "{'participation': [pf.SchemeOne(2), pf.Full()]}",
    "{'weights': [None, [0.2, 0.3, 0.5]]}", "[{'rate': 0.1, 'rounds': 1}, {'rate': 0.2}]", "{'algorithm': [A]}",
    "{'deploy': ['step', 'round']}", "{'domain': [pf.Box(-9.0, 9.0), None]}", "{'problem': [P]}", "{'population': [G]}",
    "!{'rate': [0.1, -0.2]}", "!{'population.sensitivity': [0.1, 0.2]}", "!{'population.scale': [0.0, 'x']}",
    "!{'batch.n': [1, 2.5]}", "!{'rounds': [1, 0]}", "!{}", "![]", "!{'rat': [1]}", "!{'estimator': [1]}",
    "!{'absent': ['moves', 'stays']}", "!{'rate': 0.1}", "!{'rate': '0.1'}", "!{'theta': [1]}",
    "!{'rate.scale': [1.0]}",
    "!{'participation.k': [1, 2, 9]}", "!{'loss.penalty': [0.1, -0.1]}", "!{1: [2]}", "!{'rate': [[0.1]]}",
    "!{'': [1]}",
    "!{'population.': [1]}", "!{'algorithm': [1]}", "!{'problem.weights': [[1.0]]}", "!{'rounds': ['2']}",
)  # fmt: skip


@st.composite
def sweeps(draw):
    draw(slip())
    problem, theta = draw(worlds())
    names = ("seed", "repeats", "record", "clock", "dtype", "executor")
    options = draw(call("", some=names, **{name: OPTIONS[name] for name in names}))[1:-1]
    tail = f", {options}" if options else ""
    return f"pf.sweep({problem}, {draw(algorithms())}, {draw(value(OVER))}, {draw(value(SMALL))}, {theta}{tail})"


@st.composite
def calls(draw, names=tuple(CALLS)):
    """A public callable with one wrong argument, and the name of that argument."""
    name = draw(st.sampled_from(names))
    known = parameters(name)
    if not known:
        return f"{name}()", None
    parameter = draw(st.sampled_from(known))
    return replaced(name, parameter, draw(pick(*WRONG))), parameter


USED = tuple(name for name in CALLS if use_of(name) and parameters(name))


@st.composite
def uses(draw):
    """The same, in a run."""
    text, parameter = draw(calls(USED))
    return use_of(text.partition("(")[0]).format(text), parameter


def of(name: str):
    """A property's expressions: text, or text and the name of the argument that is wrong."""
    return {
        "calls": calls, "analyses": lambda: calls(tuple(ANALYSES)), "uses": uses, "runs": runs, "sweeps": sweeps,
        "files": files, "whole_runs": runs,
    }[name]()  # fmt: skip
