"""What users get wrong: one clear message that names the parameter and says what came."""

import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import performative as pf
from performative._engine.prepare import check_owners

few = settings(max_examples=25, deadline=None, derandomize=True)
Gaussian, Strategic, Reweighted = pf.populations.Gaussian, pf.populations.Strategic, pf.populations.Reweighted
GAUSSIAN = Gaussian(np.arange(4.0), 0.5, 1.0)
PROBLEM = pf.Problem(pf.losses.squared, GAUSSIAN)
ALGORITHM = pf.p_fedavg(rate=0.1)
X, Y = np.ones((3, 4, 2)), np.zeros((3, 4), int)
not_finite = st.sampled_from([np.nan, np.inf, -np.inf])
shares = st.lists(st.floats(0.01, 1.0), min_size=4, max_size=4)


def refused(message, call, *arguments, **options):
    """The call raises ValueError with this message."""
    with pytest.raises(ValueError, match=message):
        call(*arguments, **options)


# Weights.


@few
@given(shares, st.floats(1e-3, 10.0))
def test_weights_that_do_not_sum_to_one(raw, excess):
    weights = np.asarray(raw) / np.sum(raw) * (1 + excess)
    refused(
        rf"weights must sum to one; they sum to {weights.sum():.6g}", pf.Problem, pf.losses.squared, GAUSSIAN, weights
    )


@few
@given(shares, st.integers(0, 3), st.floats(1e-6, 5.0))
def test_negative_weights(raw, where, size):
    weights = np.asarray(raw)
    weights[where] = 0.0
    weights *= (1 + size) / weights.sum()
    weights[where] = -size
    refused(rf"weights must not be negative; weights\[{where}\] = -", pf.Problem, pf.losses.squared, GAUSSIAN, weights)


@few
@given(st.integers(1, 9).filter(lambda n: n != 4))
def test_weights_of_the_wrong_length(length):
    message = rf"weights must contain one p_i for each of the 4 clients; got shape \({length},\)"
    refused(message, pf.Problem, pf.losses.squared, GAUSSIAN, np.full(length, 1 / length))


@few
@given(st.integers(0, 3), not_finite)
def test_weights_that_are_no_numbers(where, value):
    weights = np.full(4, 0.25)
    weights[where] = value
    refused(rf"weights must be finite.*index \({where},\)", pf.Problem, pf.losses.squared, GAUSSIAN, weights)


# Counts.


@few
@given(st.integers(5, 1000))
def test_more_clients_than_there_are(k):
    first = pf.FirstK(k, pf.participation.Exponential())
    for scheme in (pf.SchemeTwo(k), first, pf.LocalWork(pf.SchemeTwo(k), [1, 1, 1, 1])):
        algorithm = pf.p_fedavg(rate=0.1, participation=scheme)
        refused(rf"\(k={k}\) needs 1 <= k <= 4 clients; use Full\(\)", pf.run, PROBLEM, algorithm, rounds=2, theta=0.0)


@few
@given(st.integers(-1000, 0))
def test_counts_below_one(n):
    exponential = pf.participation.Exponential()
    refused(rf"SchemeOne\(k={n}\) needs a whole number of clients, k >= 1", pf.SchemeOne, n)
    refused(rf"SchemeTwo\(k={n}\) needs a whole number of clients, k >= 1", pf.SchemeTwo, n)
    refused(rf"FirstK\(k={n}\) needs a whole number of clients, k >= 1", pf.FirstK, n, exponential)
    for batch in (pf.Fixed, pf.Uniform, pf.Shuffled):
        refused(rf"{batch.__name__}\(n={n}\) needs a whole number of samples, n >= 1", batch, n)
    refused(rf"local_steps must be a whole number >= 1; got {n}", pf.p_fedavg, rate=0.1, local_steps=n)
    refused(rf"Every\(k={n}\) needs a whole number of rounds, k >= 1", pf.Every, n)
    refused(rf"steps must be one whole number >= 1 for each client.*got \[1, {n}\]", pf.LocalWork, pf.Full(), [1, n])
    refused(rf"1 <= lo <= hi; got lo={n}, hi=3", pf.participation.UniformSteps, n, 3)
    for name in ("rounds", "repeats", "every"):
        options = {"rounds": 2, "theta": 0.0, name: n}
        refused(rf"{name} must be a whole number >= 1; got {n}", pf.run, PROBLEM, ALGORITHM, **options)


def test_local_work_that_does_not_fit():
    short = pf.p_fedavg(rate=0.1, participation=pf.LocalWork(pf.Full(), [1, 2]))
    refused("LocalWork: steps has 2 entries for 4 clients", pf.run, PROBLEM, short, rounds=2, theta=0.0)
    work = pf.LocalWork(pf.Full(), [1, 2, 3, 1])
    refused(
        "local_steps=7 contradicts LocalWork.*largest tau_i is 3",
        pf.p_fedavg,
        rate=0.1,
        local_steps=7,
        participation=work,
    )
    refused(r"steps must be one whole number.*got \[1.5, 2\]", pf.LocalWork, pf.Full(), [1.5, 2])
    refused("steps must be one whole number", pf.LocalWork, pf.Full(), [])


# Data.


@few
@given(st.sampled_from(["mean", "sensitivity", "scale"]), st.integers(0, 2), not_finite)
def test_gaussian_data_that_are_no_numbers(field, where, value):
    fields = {"mean": np.zeros(3), "sensitivity": np.full(3, 0.5), "scale": np.ones(3)}
    fields[field][where] = value
    refused(rf"Gaussian: {field} must be finite.*1 of 3 entries.*index \({where},\)", pf.populations.Gaussian, **fields)


@few
@given(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1)), not_finite)
def test_tables_that_are_no_numbers(where, value):
    x = X.copy()
    x[where] = value
    refused(r"Strategic: x must be finite.*1 of 24 entries", pf.populations.Strategic, x, Y, 0.5)
    refused(r"Reweighted: x must be finite.*1 of 24 entries", pf.populations.Reweighted, x, Y, 0.5)
    refused(r"Strategic: strength must be finite", pf.populations.Strategic, X, Y, value)


@few
@given(st.integers(1, 9), st.integers(1, 9))
def test_client_axes_that_do_not_match(n, m):
    if n != m:
        message = rf"Gaussian: all per-client arrays need one row per client, but mean has {n}, sensitivity has {m}"
        refused(message, pf.populations.Gaussian, np.zeros(n), np.zeros(m), 1.0)
    if n != 3:
        refused(rf"x has 3, y has 3, strength has {n}", pf.populations.Strategic, X, Y, np.ones(n))
        inner = pf.populations.Gaussian(np.zeros(3), 0.0, 1.0)
        refused(rf"mean has 3, speed has {n}", pf.populations.Sluggish, inner, np.ones(n))
        outlier = pf.populations.Gaussian(np.zeros(n), 0.0, 1.0)
        refused(rf"has 3, .*has {n}", pf.populations.Contaminated, inner, 0.1, outlier)


BAD_PARTS = [
    (r"scale is a standard deviation and must be >= 0; got -1", lambda: Gaussian([1.0], 0.5, -1.0)),
    (r"mean is empty", lambda: Gaussian([], 0.5, 1.0)),
    (r"sensitivity has shape \(3, 4\), but theta has shape \(2,\)", lambda: Gaussian(X[:, 0], np.ones((3, 4)), 1.0)),
    (r"Strategic: x must be \[clients, rows, features\]; got shape \(4, 2\)", lambda: Strategic(X[0], Y[0], 0.5)),
    (r"Strategic: y must be .* \(3, 4\), like x; got shape \(3, 2\)", lambda: Strategic(X, Y[:, :2], 0.5)),
    (r"features must be column numbers 0..1 of x; got \(5,\)", lambda: Strategic(X, Y, 0.5, features=[5])),
    (r"count must lie in 1..4, the rows of x; got \[9, 1, 1\]", lambda: Strategic(X, Y, 0.5, count=[9, 1, 1])),
    (r"count must lie in 1..4", lambda: Strategic(X, Y, 0.5, count=[0, 1, 1])),
    (r'response must be "linear" or "evade"; got \'up\'', lambda: Strategic(X, Y, 0.5, response="up")),
    (r"Reweighted: x must be \[clients, rows, ...\]", lambda: Reweighted(X[0], Y[0], 0.5)),
    (r"y must contain class labels 0, 1, ...; got \[-1\]", lambda: Reweighted(X, Y - 1, 0.5)),
    (r"y must contain class labels 0, 1, ...; got \[0.5\]", lambda: Reweighted(X, Y + 0.5, 0.5)),
    (r"classes=2, but y contains class 3; pass at least 4", lambda: Reweighted(X, Y + 3, 0.5, classes=2)),
    (r"fraction must lie in \[0, 1\); got 1.5", lambda: pf.populations.Contaminated(GAUSSIAN, 1.5, GAUSSIAN)),
    (r"speed must lie in \[0, 1\]; got -0.1", lambda: pf.populations.Sluggish(GAUSSIAN, -0.1)),
    (r"Exponential: mean must be positive; got 0", lambda: pf.participation.Exponential(0.0)),
    (r"needs whole numbers 1 <= lo <= hi; got lo=2, hi=1", lambda: pf.participation.UniformSteps(2, 1)),
    (r"Box needs lo <= hi; got lo=1.0, hi=0.0", lambda: pf.Box(1.0, 0.0)),
    (r"Ball needs radius > 0; got -1.0", lambda: pf.Ball(-1.0)),
    (r'Mean: of must be "updates" or "models"; got \'x\'', lambda: pf.aggregators.Mean("x")),
    (
        r"domain: lo of the Box has shape \(2,\), but theta has shape \(\)",
        lambda: pf.Problem(pf.losses.squared, GAUSSIAN, domain=pf.Box([0.0, 0.0], 1.0)),
    ),
    (
        r'deploy must be "step", "round", "never", pf.Every\(k\), pf.Growing\(first, power\), pf.Late\(rounds\) or '
        r"pf.Explore\(radius\); got \'often\'",
        lambda: pf.p_fedavg(rate=0.1, deploy="often"),
    ),
    (r"deploy must be .* got \['step'\]", lambda: pf.p_fedavg(rate=0.1, deploy=["step"])),
    (r'absent must be "frozen" or "reacts"; got \'moving\'', lambda: pf.p_fedavg(rate=0.1, absent="moving")),
    (r"rate must be a finite number >= 0, or a schedule .*; got -1.0", lambda: pf.p_fedavg(rate=-1.0)),
    (r"rate must be a finite number .*; got nan", lambda: pf.p_fedavg(rate=np.nan)),
    (r"rate must be a finite number .*; got \[0.1 0.2\]", lambda: pf.p_fedavg(rate=[0.1, 0.2])),
    (r"multi_agent_pp fixes E = 1 .* drop \['local_steps'\]", lambda: pf.multi_agent_pp(rate=0.1, local_steps=3)),
]


@pytest.mark.parametrize(("message", "call"), BAD_PARTS, ids=range(len(BAD_PARTS)))
def test_bad_values_of_parts(message, call):
    refused(message, call)


# Runs.


@pytest.mark.parametrize(
    ("message", "options"),
    [
        (r'executor must be "dense", "gather", "sharded", "loop".*got \'fast\'', {"executor": "fast"}),
        (r'dtype must be "float32", "float64" or "bfloat16"; got \'float16\'', {"dtype": "float16"}),
        (r"theta must have shape \(\) to fit this population; got \(2,\)", {"theta": np.zeros(2)}),
        (r"theta must be finite; got nan\. Pass a model of finite numbers", {"theta": np.nan}),
        (r"stable must have the shape of theta", {"record": pf.Record(stable=np.zeros(2))}),
        (r"callbacks must be called with .*; got 3", {"callbacks": [3]}),
    ],
)
def test_bad_options_of_a_run(message, options):
    refused(message, pf.run, PROBLEM, ALGORITHM, rounds=2, **{"theta": 0.0, **options})


def test_the_remedy_for_a_model_is_not_that_for_a_table():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros((2, 2)), 0.5, 1.0))
    message = r"theta must be finite, but 1 of 2 entries .*index \(1,\)\. Pass a model of finite .*history\.status\)\.$"
    refused(message, pf.run, problem, ALGORITHM, 2, theta=np.array([0.0, np.nan]))
    refused(r"Drop or fill them first\.$", pf.populations.Gaussian, np.array([0.0, np.nan]), 0.5, 1.0)


@few
@given(st.lists(st.integers(1, 5), min_size=0, max_size=3).map(tuple).filter(lambda shape: shape != (2,)))
def test_a_theta_of_the_wrong_shape(shape):
    problem = pf.Problem(pf.losses.logistic(), pf.populations.Strategic(X, Y, 0.5))
    refused(
        r"theta must have shape \(2,\) to fit this population; got",
        pf.run,
        problem,
        ALGORITHM,
        2,
        theta=np.zeros(shape),
    )


def two_numbers(theta, z):
    return jnp.stack([theta, z])


def test_a_loss_that_returns_a_vector():
    problem = pf.Problem(two_numbers, GAUSSIAN)
    refused(
        r"loss must return one number for one sample; it returned an array of shape \[\(2,\)\]",
        pf.run,
        problem,
        ALGORITHM,
        2,
        theta=0.0,
    )


def test_a_loss_that_does_not_take_the_samples():
    problem = pf.Problem(pf.losses.logistic(), GAUSSIAN)
    refused("the population's sample and the loss are incompatible", pf.run, problem, ALGORITHM, 2, theta=0.0)


class NoSample(pf.populations.AbstractPopulation):
    """A population that forgot the one method it needs."""


class AnyModel(pf.populations.AbstractPopulation):
    def sample(self, noise, world, theta):
        return noise


def test_a_population_without_sample():
    with pytest.raises(TypeError, match=r"abstract.*sample"):
        NoSample()


def test_a_population_that_fits_any_model_needs_a_start():
    refused(
        "theta: this population accepts any model, so pass a starting point",
        pf.run,
        pf.Problem(pf.losses.squared, AnyModel()),
        ALGORITHM,
        2,
    )


def test_batches_that_a_client_cannot_serve():
    problem = pf.Problem(pf.losses.logistic(), pf.populations.Strategic(X, Y, 0.5))
    large = pf.p_fedavg(rate=0.1, batch=pf.Uniform(9))
    refused(r"Uniform\(n=9\) draws distinct rows, but a client has only 4", pf.run, problem, large, 2)
    epochs = pf.p_fedavg(rate=0.1, batch=pf.Shuffled(2))
    refused(r"Shuffled\(n\) needs a population with a finite table", pf.run, PROBLEM, epochs, 2, theta=0.0)


def test_a_mean_of_models_that_would_not_converge():
    problem = pf.Problem(pf.losses.squared, GAUSSIAN, weights=[0.4, 0.2, 0.2, 0.2])
    printed = pf.p_fedavg(rate=0.1, participation=pf.SchemeTwo(2), aggregator=pf.aggregators.Mean(of="models"))
    refused(r'Mean\(of="models"\) with SchemeTwo needs equal weights', pf.run, problem, printed, 2, theta=0.0)


def test_latencies_of_the_wrong_length():
    first = pf.p_fedavg(rate=0.1, participation=pf.FirstK(2, pf.participation.Exponential([1.0, 2.0])))
    refused(r"Exponential.mean has shape \(2,\) for 4 clients", pf.run, PROBLEM, first, 2, theta=0.0)


# Tables.

FRAME = pd.DataFrame({"bank": ["a", "a", "b", "b"], "income": [1.0, 2.0, 3.0, 4.0], "default": [0, 1, 0, 1]})


@pytest.mark.parametrize(
    ("message", "frame", "options"),
    [
        (r"client='bonk' is not a column of the table. Did you mean 'bank'\?", FRAME, {"client": "bonk"}),
        (r"label='defaults' is not a column of the table. Did you mean 'default'\?", FRAME, {"label": "defaults"}),
        (r"strategic: 'incom' is not a feature of the table. Did you mean 'income'\?", FRAME, {"strategic": ["incom"]}),
        (r"numeric features; encode or drop the columns \['name'\]", FRAME.assign(name=list("wxyz")), {}),
        (r"label='default' contains 1 and 2; specify which of them is 1", FRAME.assign(default=[1, 2, 1, 2]), {}),
        (
            r"label='default' contains 'n' and 'y'; specify .* positive= to the class that",
            FRAME.assign(default=list("nyny")),
            {},
        ),
        (r"label='default' is missing in 1 of 4 rows", FRAME.assign(default=[0, 1, np.nan, 1]), {}),
        (r"column 'income' must be finite.*index \(2,\)", FRAME.assign(income=[1, 2, np.nan, 4]), {}),
        (r"column 'income' must be finite.*index \(0,\)", FRAME.assign(income=[np.inf, 2, 3, 4]), {}),
        (r"client='bank' is missing in 1 of 4 rows", FRAME.assign(bank=["a", None, "b", "b"]), {}),
        (r"strength has no entry for clients \['b'\]", FRAME, {"strength": {"a": 1.0}}),
        (r"strength must not be negative; got -1. .*pass the other class as `positive`", FRAME, {"strength": -1.0}),
        (r"strength must be a number, one per client \(2 of them: .*got shape \(3,\)", FRAME, {"strength": [1.0] * 3}),
        (r"strength must be numeric; got .*a lot", FRAME, {"strength": "a lot"}),
        (
            r"column 'income' has values of up to 1e\+300.*too large to scale; clip",
            FRAME.assign(income=[1e300, 2, 3, 4]),
            {},
        ),
        (r"frame has no rows", FRAME.iloc[:0], {}),
        (r"frame has no features: .* client='bank' and label='default'", FRAME[["bank", "default"]], {}),
        (r"frame must be a table with one row per person.*got dict", {"bank": ["a"]}, {}),
    ],
)
def test_bad_tables(message, frame, options):
    refused(message, pf.Problem.from_frame, frame, **{"client": "bank", "label": "default", **options})


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("from_frame() has no argument 'strenght'. Did you mean 'strength'?",
         lambda: pf.Problem.from_frame(FRAME, label="default", strenght=1.0)),
        ("certify() has no argument 'thetaa'. Did you mean 'theta'?", lambda: pf.certify(PROBLEM, thetaa=0.0)),
        ("stable_point() has no argument 'strt'. Did you mean 'start'?", lambda: pf.stable_point(PROBLEM, strt=0.0)),
        ("compare() has no argument 'metrc'. Did you mean 'metric'?", lambda: pf.compare({}, metrc="loss")),
        ("stress() has no argument 'strategics'. Did you mean 'strategic'?",
         lambda: pf.sklearn.stress(None, X, Y, strategics=["a"])),
        ("plot() has no argument 'axes'. Did you mean 'ax'?", lambda: pf.History.plot(None, axes=None)),
        ("audit_logs() has no argument 'group'. Did you mean 'groups'?",
         lambda: pf.audit.audit_logs("logs", group="g")),
        ("compare(): missing a required argument: 'histories'", pf.compare),
    ],
)  # fmt: skip
def test_misspelled_keywords(said, call):
    with pytest.raises(TypeError) as error:
        call()
    assert str(error.value) == said


def test_a_good_table_is_taken():
    problem = pf.Problem.from_frame(
        FRAME, client="bank", label="default", strategic="income", strength={"a": 1.0, "b": 0.5}
    )
    assert problem.clients == 2 and problem.population.features == (0,)


# Wrong types, as a user meets them: the tests' own type checks would speak first, so this runs without them.

WRONG_TYPES = {
    "pf.Problem(pf.losses.squared, G, ['a', 'b', 'c', 'd'])": "weights must be numeric",
    "pf.Problem(3, G)": r"loss must be a function l\(theta, z\) of one sample; got 3",
    "pf.Problem(pf.losses.squared, 'people')": "population must be .* with a `sample.*` method; got str",
    "pf.Problem(pf.losses.squared, G, domain=3)": r"domain must be pf.Box\(lo, hi\), pf.Ball\(radius\) or None; got 3",
    "pf.populations.Gaussian(['a', 'b'], 0.5, 1.0)": r"mean must be numeric; got dtype <U1 and shape \(2,\)",
    "pf.Problem.from_frame('p.csv', label='y')": "got the path 'p.csv'. Read the file first",
    "pf.p_fedavg('0.1')": "rate must be a finite number .*; got '0.1'",
    "pf.populations.Sluggish(3, 0.5)": "Sluggish: inner must be a population; got 3",
    "pf.participation.Retention(3, pf.participation.Patience(1.0))": "Retention: inner must be a participation.*got 3",
    "pf.participation.Retention(pf.Full(), 0.5)": "Retention: stay must be a part such as Patience.*got 0.5",
    "pf.populations.Drifting(3, pf.paths.Linear(0.1))": "Drifting: inner must be a population; got 3",
    "pf.populations.Drifting(pf.populations.Gaussian([1.0], 0.5, 1.0), 0.1)": "Drifting: path must be a path such as",
    "pf.populations.Strategic(X, Y, 0.5, features=['a'])": r"features must be column numbers 0..1 of x; got \('a',\)",
    "pf.SchemeOne(1.5)": r"SchemeOne\(k=1.5\) needs a whole number of clients",
    "pf.SchemeTwo(True)": r"SchemeTwo\(k=True\) needs a whole number of clients",
    "pf.Fixed(2.5)": r"Fixed\(n=2.5\) needs a whole number of samples",
    "pf.FirstK(2, 1.0)": "latency must be a distribution such as .*; got 1.0",
    "pf.LocalWork(3, [1, 2])": r"inner must be a participation such as pf.Full\(\); got 3",
    "pf.participation.UniformSteps(1, 2.5)": "UniformSteps needs whole numbers .*hi=2.5",
    "pf.p_fedavg(rate=0.1, local_steps=1.5)": "local_steps must be a whole number >= 1; got 1.5",
    "pf.p_fedavg(rate=0.1, local_steps=True)": "local_steps must be a whole number >= 1; got True",
    "pf.p_fedavg(rate='fast')": "rate must be a finite number .*; got 'fast'",
    "pf.p_fedavg(rate=None)": "rate must be a finite number .*; got None",
    "pf.p_fedavg(rate=0.1, batch=4)": r"batch must be a part such as pf.Fixed\(1\); got 4",
    "pf.p_fedavg(rate=0.1, participation=3)": r"participation must be a part such as pf.SchemeOne\(2\); got 3",
    "pf.run(3, A, 2)": "problem must be a pf.Problem; got int",
    "pf.run(P, 3, 2)": "algorithm must be a pf.Algorithm, .*; got int",
    "pf.run(P, A, 1.5, theta=0.0)": "rounds must be a whole number >= 1; got 1.5",
    "pf.run(P, A, 2, theta=0.0, seed=0.5)": "seed must be a whole number from 0 to .*; got 0.5",
    "pf.Record(risks=-1)": "risks must be True, False or a whole number of points; got -1",
    "pf.Record(theta='some')": 'theta must be "all" or "last".*got \'some\'',
    "pf.Record(clients='loss')": "clients must be a list of names",
    "pf.Record(cohorts=True, every=2)": "every round has its own cohort, so every must be 1; got 2",
    "pf.Record(metrics={'a b': abs})": "a name must be a word",
    "pf.Record(metrics={'a': 3})": "'a' must be a pf.Metric, or a function of the view; got 3",
    "pf.Metric(3)": "function must be called with a view",
    "pf.Metric(abs, 'sum')": 'kind must be "level" or "total"; got \'sum\'',
    "pf.Checkpoint(3)": "checkpoint must be the path of a folder; got 3",
    "pf.callbacks.Stop(3)": "condition must be a function of the news; got 3",
}
SCRIPT = """
import json, sys
import numpy as np, performative as pf
G = pf.populations.Gaussian(np.arange(4.0), 0.5, 1.0)
P, A, X, Y = pf.Problem(pf.losses.squared, G), pf.p_fedavg(rate=0.1), np.ones((3, 4, 2)), np.zeros((3, 4), int)
said = {}
for call in json.load(sys.stdin):
    try:
        said[call] = f"no error: {eval(call)}"
    except Exception as error:
        said[call] = f"{type(error).__name__}: {error}"
assert pf.SchemeTwo(np.int64(2)) == pf.SchemeTwo(2) and pf.Fixed(np.int32(3)) == pf.Fixed(3)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said():
    calls = json.dumps(list(WRONG_TYPES))
    done = subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], input=calls, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("call", WRONG_TYPES)
def test_wrong_types(said, call):
    refused(WRONG_TYPES[call], speak, said[call])


def speak(text):
    kind, _, message = text.partition(": ")
    raise {"ValueError": ValueError}.get(kind, RuntimeError)(message)


# First tries of people who know other libraries.


@pytest.mark.parametrize("name", ["lr", "learning_rate", "step_size"])
def test_what_other_libraries_call_a_step(name):
    refused(f"p_fedavg has no argument '{name}'. Did you mean 'rate'", pf.p_fedavg, **{name: 0.1})


def test_other_names_are_suggested_only_where_there_is_such_a_parameter():
    with pytest.raises(TypeError, match=r"run\(\) has no argument 'num_rounds'. Did you mean 'rounds'"):
        pf.run(PROBLEM, pf.p_fedavg(0.1), num_rounds=3)
    with pytest.raises(TypeError, match=r"no argument 'lr'. Choose one of"):
        pf.certify(PROBLEM, lr=0.1)


def test_tables_and_classes_where_a_problem_is_expected():
    with_table = "problem must be a pf.Problem; got DataFrame. Make one .* pf.Problem.from_frame"
    refused(with_table, check_owners, FRAME, pf.p_fedavg(0.1))
    people = pf.populations.Gaussian([0.0], 0.1, 1.0)
    refused(r"got the class Logistic: use Logistic\(\)", pf.Problem, pf.losses.Logistic, people)
    refused(r"or name the one that says whose row it is with client=", pf.Problem.from_frame, FRAME, label="default")
