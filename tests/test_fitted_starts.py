"""A fitted scikit-learn model as the start: its scores on the frame, whatever its columns, classes and scalers."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, RobustScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import performative as pf
from performative._engine.prepare import read_theta

FEATURES = ["income", "cards", "age"]


def people(rows=240):
    random = np.random.default_rng(3)
    raw = random.standard_normal((rows, 3)) * [10_000.0, 2.0, 12.0] + [50_000.0, 4.0, 45.0]
    score = (raw - raw.mean(axis=0)) / raw.std(axis=0) @ [-1.0, 0.7, 0.3]
    late = random.uniform(size=rows) < 1 / (1 + np.exp(-score))
    frame = pd.DataFrame(raw, columns=FEATURES)
    return frame.assign(bank=random.choice(["north", "south"], rows), late=late.astype(int),
                        status=np.where(late, "bad", "good"))  # fmt: skip


FRAME = people()
SCALED = make_pipeline(StandardScaler(), LogisticRegression())
MODELS = {
    "LogisticRegression": LogisticRegression(max_iter=5000, tol=1e-10),
    "in a Pipeline": SCALED,
    "RobustScaler": make_pipeline(RobustScaler(), LogisticRegression()),
    "MinMaxScaler": make_pipeline(MinMaxScaler(), RidgeClassifier()),
    "two scalers": make_pipeline(StandardScaler(), MinMaxScaler(), LinearSVC()),
    "ColumnTransformer": make_pipeline(
        ColumnTransformer([("some", StandardScaler(), ["age", "income"])], remainder="passthrough"), RidgeClassifier()
    ),
    "SGDClassifier": make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", random_state=0)),
    "Perceptron": make_pipeline(StandardScaler(), Perceptron()),
    "discriminant": LinearDiscriminantAnalysis(),
    "SVC": make_pipeline(StandardScaler(), SVC(kernel="linear")),
    "search": GridSearchCV(SCALED, {"logisticregression__C": [0.1, 1.0]}, cv=2),
}


def problem(label="late", **options):
    columns = ["bank", *FEATURES, label]
    return pf.Problem.from_frame(FRAME[columns], client="bank", label=label, **options)


def start(made, model):
    return np.asarray(read_theta(made, model, jnp.float64))


def scores(made, theta):
    """theta.x of every row, in the order of the frame."""
    out = np.empty(len(FRAME))
    for i, bank in enumerate(made.columns.clients):
        here = np.flatnonzero(FRAME["bank"] == bank)
        out[here] = made.population.x[i, : len(here)] @ theta
    return out


@pytest.mark.parametrize("standardize", [True, False, "robust"])
@pytest.mark.filterwarnings("ignore:.*columns-not-scaled")
@pytest.mark.parametrize("order", [pytest.param(FEATURES, marks=pytest.mark.slow), ["cards", "age", "income"]])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("double_precision")
def test_scores_are_the_models_own(name, order, standardize):
    model = MODELS[name].fit(FRAME[order], FRAME["late"])
    made = problem(standardize=standardize)
    expected = model.decision_function(FRAME[order])
    np.testing.assert_allclose(scores(made, start(made, model)), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("positive", ["bad", "good"])
@pytest.mark.usefixtures("double_precision")
def test_classes_are_read_by_name(positive):
    """scikit-learn sorts its classes: its scores speak for "good". Ours speak for what is called positive."""
    model = SCALED.fit(FRAME[FEATURES], FRAME["status"])
    made = problem("status", positive=positive)
    sign = {"good": 1, "bad": -1}[positive]
    np.testing.assert_allclose(scores(made, start(made, model)), sign * model.decision_function(FRAME[FEATURES]))
    ones = sum(int(np.sum(made.population.y[i, :n])) for i, n in enumerate(made.population.count))
    assert ones == np.sum(FRAME["status"] == positive)
    assert made.columns.classes == ({"good": "bad", "bad": "good"}[positive], positive)


@pytest.mark.usefixtures("double_precision")
def test_fewer_columns_than_the_problem_has():
    model = SCALED.fit(FRAME[["age", "cards"]], FRAME["late"])
    theta = start(problem(), model)
    assert theta[0] == 0
    np.testing.assert_allclose(scores(problem(), theta), model.decision_function(FRAME[["age", "cards"]]))


@pytest.mark.usefixtures("double_precision")
def test_an_array_has_no_names():
    model = SCALED.fit(FRAME[FEATURES].to_numpy(), FRAME["late"])
    with pytest.warns(UserWarning, match=r"\['income', 'cards', 'age'\], in this order.*\[model-without-names\]"):
        theta = start(problem(), model)
    np.testing.assert_allclose(scores(problem(), theta), model.decision_function(FRAME[FEATURES].to_numpy()))
    narrow = SCALED.fit(FRAME[FEATURES[:2]].to_numpy(), FRAME["late"])
    with pytest.raises(ValueError, match=r"array of 2 columns, the problem has 3 features.*\[model-of-other-columns\]"):
        start(problem(), narrow)


@pytest.mark.parametrize(
    ("model", "label", "says"),
    [
        (DecisionTreeClassifier(), "late", "DecisionTreeClassifier cannot be a start: it has no decision_function"),
        (GradientBoostingClassifier(n_estimators=3), "late", "GradientBoostingClassifier.*not linear in the features"),
        (make_pipeline(StandardScaler(), PolynomialFeatures(2), RidgeClassifier()), "late", "Pipeline.*not linear"),
        (make_pipeline(MinMaxScaler(clip=True), LogisticRegression()), "late", "Pipeline cannot.*not linear"),
        (SVC(), "late", "SVC cannot be a start: its scores are not linear"),
        (LinearRegression(), "late", "LinearRegression cannot be a start: it predicts numbers, not classes"),
        (LogisticRegression(), None, "LogisticRegression cannot be a start: it has not been fitted"),
        (SCALED, "status", r"classes \['bad', 'good'\], the problem's labels are 0 \(0\) and 1 \(1\).*other-classes"),
        (SCALED, "bank", r"classes \['north', 'south'\].*\[model-of-other-classes\]"),
    ],
)
def test_what_cannot_start_is_named(model, label, says):
    if label is not None:
        model = model.fit(FRAME[FEATURES], FRAME[label])
    with pytest.raises(ValueError, match=says) as raised:
        pf.run(problem(), pf.p_fedavg(0.1), 1, theta=model)
    assert str(raised.value).endswith(("[model-not-linear]", "[model-of-other-classes]"))


def test_more_than_two_classes():
    three = np.arange(len(FRAME)) % 3
    with pytest.raises(ValueError, match=r"classes \[0, 1, 2\], the problem's labels.*\[model-of-other-classes\]"):
        pf.stable_point(problem(), start=SCALED.fit(FRAME[FEATURES], three))
    with pytest.raises(ValueError, match=r"label='late' must have two classes, such as 0 and 1; found \[0, 1, 2\]"):
        pf.Problem.from_frame(FRAME[["bank", *FEATURES]].assign(late=three), client="bank", label="late")


def test_columns_that_the_problem_lacks():
    model = SCALED.fit(FRAME[FEATURES].rename(columns={"age": "Age"}), FRAME["late"])
    with pytest.raises(ValueError, match=r"fitted on \['Age'\].* Did you mean 'age'.*\[model-of-other-columns\]"):
        start(problem(), model)


@pytest.mark.usefixtures("double_precision")
def test_a_problem_without_an_intercept():
    made = problem(intercept=False)
    with pytest.raises(ValueError, match=r"problem has no intercept; pass intercept=True to from_frame.*model-not-l"):
        start(made, SCALED.fit(FRAME[FEATURES], FRAME["late"]))
    bare = make_pipeline(StandardScaler(), LogisticRegression(fit_intercept=False)).fit(FRAME[FEATURES], FRAME["late"])
    np.testing.assert_allclose(scores(made, start(made, bare)), bare.decision_function(FRAME[FEATURES]), atol=1e-6)


@pytest.mark.parametrize(
    ("label", "options", "says"),
    [
        ("status", {}, r"contains '(bad|good)' and '(bad|good)'; specify which of them is 1: set positive= to"),
        ("status", {"positive": "late"}, r"positive='late' is not a value of label='status'"),
        ("late", {"positive": 2}, "positive=2 is not a value of label='late'"),
    ],
)
def test_labels_that_say_nothing_of_themselves(label, options, says):
    with pytest.raises(ValueError, match=says):
        problem(label, **options)


def test_labels_that_are_missing():
    gap = FRAME[["bank", *FEATURES, "status"]].copy()
    gap.loc[7, "status"] = None
    with pytest.raises(ValueError, match="label='status' is missing in 1 of 240 rows"):
        pf.Problem.from_frame(gap, client="bank", label="status", positive="bad")


def test_things_that_are_no_model_are_named():
    class Results:
        params = np.ones(4)

    with pytest.raises(ValueError, match=r"theta must be a pytree of arrays, but theta is <.*Results object"):
        pf.run(problem(), pf.p_fedavg(0.1), 1, theta=Results())
