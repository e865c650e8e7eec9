"""Estimators of scikit-learn: its own checks, the library's points, pipelines and searches."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

import performative as pf
from performative.sklearn import PerformativeClassifier, PerformativeRegressor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 3))
Y = (X @ [1.0, -1.0, 0.5] + RNG.standard_normal(120) > 0).astype(int)
TARGET = X @ [1.0, -1.0, 0.5] + 3.0 + 0.3 * RNG.standard_normal(120)
FRAME = pd.DataFrame(X, columns=["debt", "income", "age"])


# To fit compiles for a second or so, and the checks fit tables of many shapes: here run those about what a user of
# pipelines meets first, the slow ones are all of them. Without a response accuracy is demanded, too.
FIRST = ("params", "clone", "n_features_in", "feature_names", "pickle", "dict_unchanged", "fitted", "tags", "repr")
LONG = [
    PerformativeClassifier(),
    PerformativeClassifier(strength=0.0),
    PerformativeClassifier(method="static"),
    PerformativeRegressor(),
    PerformativeRegressor(strength=0.0),
    PerformativeRegressor(desired="high"),
]


def checks_of(*estimators):
    """Those of scikit-learn's checks that come first, by name."""
    for estimator in estimators:
        for made, check in estimator_checks_generator(estimator):
            name = check.func.__name__
            if any(word in name for word in FIRST):
                yield pytest.param(made, check, id=f"{type(made).__name__}-{name}")


# Some checks fit classes that are words.
GUESSED = pytest.mark.filterwarnings("ignore:.*desired-class-assumed")


@GUESSED
@pytest.mark.parametrize(("estimator", "check"), list(checks_of(PerformativeClassifier(), PerformativeRegressor())))
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@GUESSED
@pytest.mark.parametrize("estimator", LONG, ids=str)
def test_all_of_scikit_learns_checks(estimator):
    found = check_estimator(estimator, on_fail=None, on_skip=None)
    wrong = [f"{one['check_name']}: {one['exception']!r}" for one in found if one["status"] == "failed"]
    assert not wrong, "\n".join(wrong)
    # One check wants an environment variable to be set.
    skipped = {one["check_name"] for one in found if one["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"} and len(found) > 45


def test_static_is_scikit_learns_own():
    """penalty=None is C = 1 of LogisticRegression and alpha = 1 of Ridge."""
    ours = PerformativeClassifier(method="static").fit(X, Y)
    theirs = LogisticRegression(tol=1e-10, max_iter=1000).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    line = PerformativeRegressor(method="static").fit(X, TARGET)
    np.testing.assert_allclose(line.coef_, Ridge(1.0).fit(X, TARGET).coef_, atol=1e-8)
    np.testing.assert_allclose(line.intercept_, Ridge(1.0).fit(X, TARGET).intercept_, atol=1e-8)


@pytest.mark.parametrize(
    "strength", [(0.0, 0.3), *(pytest.param(one, marks=pytest.mark.slow) for one in (0.3, (0.4, 0.1)))]
)
def test_stable_and_optimal_are_the_solvers_points(strength):
    """The stable model is a root of the decoupled gradient, the optimal one has the least performative risk."""
    made = PerformativeClassifier(strategic=[0, 2], strength=strength, penalty=0.1)
    problem = made.problem(X, Y)
    stable = made.fit(X, Y)
    assert stable.settled_ and stable.n_iter_ >= 2
    expected = pf.stable_point(problem)
    np.testing.assert_allclose(np.append(stable.coef_, stable.intercept_), expected, atol=1e-5)
    optimal = made.set_params(method="optimal").fit(X, Y)
    found = np.append(optimal.coef_, optimal.intercept_)
    np.testing.assert_allclose(found, pf.optimal_point(problem), atol=1e-6)
    alike = np.allclose(found, expected, atol=1e-5)
    assert alike == np.isscalar(strength), "where everybody responds alike, an intercept undoes it; else it cannot"


def test_the_stable_intercept_in_closed_form():
    """All respond alike: the slopes are the static model's, the intercept undoes the common shift s |theta|^2."""
    static = PerformativeClassifier(method="static").fit(X, Y)
    stable = PerformativeClassifier(strength=0.5, strategic=[0, 1]).fit(X, Y)
    np.testing.assert_allclose(stable.coef_, static.coef_, atol=1e-6)
    moved = 0.5 * np.sum(np.square(static.coef_[0, :2]))
    np.testing.assert_allclose(stable.intercept_, static.intercept_ + moved, atol=1e-6)
    wanted = PerformativeClassifier(strength=0.5, strategic=[0, 1], desired=1).fit(X, Y)
    np.testing.assert_allclose(wanted.intercept_, static.intercept_ - moved, atol=1e-6)


def test_people_respond_and_score_is_after_it():
    static = PerformativeClassifier(method="static", strength=1.0, strategic=["debt"]).fit(FRAME, Y)
    shown = static.respond(FRAME)
    expected = FRAME["debt"] - 1.0 * static.coef_[0, 0]
    np.testing.assert_allclose(shown["debt"], expected, atol=1e-12)
    pd.testing.assert_frame_equal(shown[["income", "age"]], FRAME[["income", "age"]])
    assert static.score(FRAME, Y) == np.mean(static.predict(shown) == Y)
    stable = PerformativeClassifier(strength=1.0, strategic=["debt"]).fit(FRAME, Y)
    assert stable.score(FRAME, Y) == np.mean(static.predict(FRAME) == Y), "an intercept undoes a common shift"
    assert stable.score(FRAME, Y) > static.score(FRAME, Y)


def test_redeployment_is_retraining():
    problem = PerformativeClassifier(strength=(0.2, 0.6), penalty=0.1).problem(X, Y)
    path = pf.repeated_risk_minimization(problem, np.zeros(4), 3)
    model = PerformativeClassifier(strength=(0.2, 0.6), penalty=0.1)
    for k in range(1, 4):
        model.partial_fit(X, Y, classes=[0, 1])
        np.testing.assert_allclose(np.append(model.coef_, model.intercept_), path[k], atol=1e-8)
    assert model.deployments_ == 3
    again = PerformativeClassifier(strength=(0.2, 0.6), penalty=0.1).partial_fit(X, Y)
    logged = again.respond(X, Y)
    np.testing.assert_allclose(again.partial_fit(logged, Y, responded=True).coef_[0], path[2][:3], atol=1e-8)


def test_clients_of_their_own_strength():
    bank = np.where(np.arange(120) % 2, "north", "south")
    strength = {"north": 0.0, "south": 0.8}
    model = PerformativeClassifier(strength=strength, penalty=0.1)
    problem = model.problem(X, Y, clients=bank)
    assert problem.clients == 2 and problem.population.strength.tolist() == [0.0, 0.8]
    model.fit(X, Y, clients=bank)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), pf.stable_point(problem), atol=1e-5)
    shown = model.respond(X, clients=bank)
    np.testing.assert_array_equal(shown[bank == "north"], X[bank == "north"])
    np.testing.assert_allclose(shown[bank == "south"], X[bank == "south"] - 0.8 * model.coef_[0], atol=1e-12)
    with pytest.raises(ValueError, match=r"strength has no entry for \['south'\]"):
        PerformativeClassifier(strength={"north": 1.0}).fit(X, Y, clients=bank)
    with pytest.raises(ValueError, match=r"strength is given by client, so pass clients="):
        model.score(X, Y)
    gone = np.asarray([None, *bank[1:]], object)
    for missing in (gone, np.where(gone == None, np.nan, gone)):  # noqa: E711
        with pytest.raises(ValueError, match=rf"clients is missing in 1 of {len(X)} rows"):
            model.fit(X, Y, clients=missing)
    with pytest.raises(ValueError, match=r"clients must be all numbers or all text"):
        model.fit(X, Y, clients=np.asarray([3, *bank[1:]], object))
    with pytest.raises(ValueError, match="one client for each of the 120 rows"):
        model.fit(X, Y, clients=["a"])


def test_a_regression_that_people_want_low():
    static = PerformativeRegressor(method="static").fit(X, TARGET)
    low = PerformativeRegressor(strength=0.2).fit(X, TARGET)
    np.testing.assert_allclose(low.coef_, static.coef_, atol=1e-6)
    np.testing.assert_allclose(low.intercept_ - static.intercept_, 0.2 * np.sum(static.coef_**2), atol=1e-6)
    assert low.score(X, TARGET) == pytest.approx(static.set_params(strength=0.0).score(X, TARGET))
    with pytest.raises(ValueError, match='desired must be "low" or "high"'):
        PerformativeRegressor(desired="less").fit(X, TARGET)


def test_in_a_pipeline_and_a_search():
    """Search over strength and method by the accuracy after people responded; the columns keep their names."""
    pipeline = make_pipeline(StandardScaler(), PerformativeClassifier(strategic=["debt"], strength=1.0))
    pipeline.set_output(transform="pandas")
    grid = {"performativeclassifier__method": ["static", "stable"], "performativeclassifier__penalty": [0.01, 0.1]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(FRAME, Y)
    assert search.best_params_["performativeclassifier__method"] == "stable"
    assert search.best_score_ > 0.7
    assert list(search.best_estimator_[-1].feature_names_in_) == ["debt", "income", "age"]
    plain = make_pipeline(StandardScaler(), PerformativeClassifier(strategic=["debt"]))
    with pytest.raises(ValueError, match=r"X has no names.*set_output"):
        plain.fit(FRAME, Y)


def test_words_as_classes():
    words = np.where(Y > 0, "refuse", "grant")
    model = PerformativeClassifier(strength=0.2, desired="grant").fit(X, words)
    assert model.classes_.tolist() == ["grant", "refuse"]
    assert set(model.predict(X)) <= {"grant", "refuse"}
    other = PerformativeClassifier(strength=0.2).fit(X, Y)
    np.testing.assert_allclose(model.coef_, other.coef_)


def test_retraining_that_does_not_settle_is_said():
    """Those of class 1 move far, so that each retraining overshoots."""
    model = PerformativeClassifier(strength=(0.0, 60.0), penalty=0.01, max_iter=4)
    with pytest.warns(ConvergenceWarning, match="retraining did not settle in max_iter=4 deployments"):
        model.fit(X, Y)
    assert model.settled_ is False and np.all(np.isfinite(model.coef_))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"method": "steady"}, 'method must be "stable", "optimal" or "static"'),
        ({"strength": -1.0}, "strength must not be negative; `desired` says"),
        ({"strength": [1.0, 2.0, 3.0]}, r"strength must be one number, \(one for each class\)"),
        ({"strength": np.nan}, "strength must be finite"),
        ({"strategic": ["dept"]}, "Did you mean 'debt'"),
        ({"strategic": [7]}, r"column numbers 0..2 or names; got 7"),
        ({"strategic": 1.5}, "strategic must list columns"),
        ({"desired": 2}, "desired=2 is not a class of y"),
        ({"penalty": -0.1}, "penalty must not be negative"),
        ({"max_iter": 0}, "max_iter must be a whole number >= 1"),
        ({"tol": 0.0}, "tol must be above 0"),
        ({"fit_intercept": "no"}, "fit_intercept must be True or False"),
    ],
)
def test_wrong_parameters_are_named(options, told):
    with pytest.raises(ValueError, match=told):
        PerformativeClassifier(**options).fit(FRAME, Y)


def test_what_it_cannot_learn_is_refused():
    with pytest.raises(ValueError, match="needs two classes in y; got 1 class"):
        PerformativeClassifier().fit(X, np.zeros(120, int))
    with pytest.raises(ValueError, match=r"Only binary classification is supported.*multiclass"):
        PerformativeClassifier().fit(X, np.arange(120) % 3)
    model = PerformativeClassifier(strength=(0.0, 0.1)).fit(X, Y)
    with pytest.raises(ValueError, match="respond needs y"):
        model.respond(X)
    with pytest.raises(ValueError, match="y contains"):
        model.partial_fit(X, Y + 5)


def test_a_ridge_loss_with_an_intercept_has_no_closed_form_of_others():
    """The population's formula penalizes all entries; with a free intercept the solver takes its place."""
    people = pf.populations.Regression([[1.0, 1.0]], 0.5, [[1.0, 3.0]], 0.2, 0.3)
    assert people.stable_point(pf.losses.ridge(0.5), np.ones(1)) is not None
    assert people.stable_point(pf.losses.ridge(0.5, intercept=1), np.ones(1)) is None
    with pytest.raises(ValueError, match="ridge: intercept must be a column number"):
        pf.losses.ridge(0.5, intercept=-1)


def test_a_batch_of_one_class_has_no_intercept():
    people = np.random.default_rng(0).normal(size=(6, 2))
    with pytest.raises(ValueError, match="all 6 people of this deployment are of class 'no'"):
        PerformativeClassifier().partial_fit(people, np.full(6, "no"), classes=["no", "yes"])


def test_a_guess_of_what_people_want_is_told():
    """Of "late" and "paid" people were taken to want "late", the first in the alphabet, without a word."""
    words = np.where(Y == 1, "paid", "late")
    with pytest.warns(
        pf.PerformativeWarning, match=r"assumed to want 'late', not 'paid'; set desired=.*\[desired-class"
    ):
        guessed = PerformativeClassifier(strength=0.1).fit(X, words)
    meant = PerformativeClassifier(strength=0.1, desired="paid").fit(X, words)
    assert np.all((guessed.respond(X) - X) * guessed.coef_ <= 0) and np.all((meant.respond(X) - X) * meant.coef_ >= 0)
    for kind in (Y, Y == 1, np.where(Y == 1, "yes", "no")):  # these say which class is the 1
        PerformativeClassifier(strength=0.1).fit(X, kind)
    PerformativeClassifier(strength=0.0).fit(X, words)


def test_polars_in_polars_out():
    polars = pytest.importorskip("polars")
    table = polars.from_pandas(FRAME)
    model = PerformativeClassifier(strength=0.1, strategic=["debt"]).fit(table, Y)
    moved = model.respond(table)
    assert isinstance(moved, polars.DataFrame) and moved.columns == table.columns
    pd.testing.assert_frame_equal(moved.to_pandas(), model.respond(FRAME))
    assert model.score(table, Y) == model.score(FRAME, Y)  # it used to warn that names were missing
