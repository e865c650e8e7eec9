"""From a table of people to a first answer."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import performative as pf


def people(rows: int = 300) -> pd.DataFrame:
    random = np.random.default_rng(0)
    income = random.normal(50_000.0, 10_000.0, rows)
    cards = random.integers(0, 9, rows).astype(float)
    score = (income - 50_000) / 10_000 - 0.3 * (cards - 4)
    return pd.DataFrame(
        {
            "bank": random.choice(["north", "south", "west"], rows, p=[0.5, 0.3, 0.2]),
            "income": income,
            "cards": cards,
            "default": (random.uniform(size=rows) < 1 / (1 + np.exp(score))).astype(int),
        }
    )


FRAME = people()


def problem(**options) -> pf.Problem:
    return pf.Problem.from_frame(FRAME, client="bank", label="default", strategic=["cards"], **options)


def test_tables_weights_and_columns():
    made = problem(strength=0.5)
    assert made.clients == 3
    counts = FRAME["bank"].value_counts().sort_index()
    np.testing.assert_allclose(made.weights, counts / len(FRAME))
    np.testing.assert_array_equal(made.population.count, counts)
    assert made.columns.names == ("income", "cards", "intercept")
    assert made.columns.clients == ("north", "south", "west")
    assert made.population.features == (1,)
    south = FRAME[FRAME["bank"] == "south"]
    raw = made.population.x[1, : len(south), :2] * np.asarray(made.columns.spread) + np.asarray(made.columns.center)
    np.testing.assert_allclose(raw, south[["income", "cards"]].to_numpy(), rtol=1e-10)


def test_strength_by_client():
    made = problem(strength={"north": 1.0, "south": 2.0, "west": 3.0})
    np.testing.assert_array_equal(made.population.strength, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"strength has no entry for clients \['west'\]"):
        problem(strength={"north": 1.0, "south": 2.0})


@pytest.mark.slow
def test_a_fitted_model_starts_with_the_same_scores():
    raw = FRAME[["income", "cards"]]
    model = LogisticRegression(C=10.0).fit((raw - raw.mean()) / raw.std(), FRAME["default"])
    model.coef_ = model.coef_ / raw.std().to_numpy()
    model.intercept_ = model.intercept_ - model.coef_ @ raw.mean().to_numpy()
    made = problem(strength=0.5)
    theta = made.columns.start(model)
    scores = made.population.x[0, :5] @ theta
    north = FRAME[FRAME["bank"] == "north"][["income", "cards"]].to_numpy()[:5]
    np.testing.assert_allclose(scores, north @ model.coef_[0] + model.intercept_[0], rtol=1e-8)
    history = pf.run(made, pf.p_fedavg(rate=0.1, batch=pf.Fixed(8)), rounds=2, theta=model, dtype="float64")
    np.testing.assert_allclose(history.theta[0, 0], theta)


@pytest.mark.slow
def test_training_on_a_frame_comes_near_the_exact_stable_point():
    made = problem(strength=0.5, penalty=0.1)
    stable = pf.stable_point(made)
    history = pf.run(
        made,
        pf.p_fedavg(rate=pf.schedules.harmonic(10.0, 20.0), batch=pf.Fixed(64)),
        rounds=400,
        theta=np.zeros(3),
        record=pf.Record(stable=stable, risks=False),
    )
    assert history["distance_to_stable"][0, -1] < 0.05 * np.linalg.norm(stable)


def with_column(values, **options):
    frame = FRAME.assign(odd=values)
    return pf.Problem.from_frame(frame, client="bank", label="default", **options)


RANDOM = np.random.default_rng(1)


def test_outliers_that_set_the_scale():
    values = RANDOM.normal(size=len(FRAME))
    values[:2] = 1e4
    with pytest.warns(UserWarning, match=r"column 'odd' to \d+ times.*\"robust\".*\[outliers-set-the-scale\]"):
        narrow = with_column(values)
    wide = with_column(values, standardize="robust")
    usual = []
    for made in (narrow, wide):
        column = np.concatenate([x[:n, 2] for x, n in zip(made.population.x, made.population.count, strict=True)])
        usual.append(np.sort(column)[:-2].std())
    assert usual[0] < 0.01 and 0.8 < usual[1] < 1.2
    assert wide.columns.center[2] == np.median(values)


@pytest.mark.parametrize(
    "values",
    [
        RANDOM.normal(size=len(FRAME)),
        RANDOM.exponential(size=len(FRAME)),
        RANDOM.lognormal(size=len(FRAME)),
        RANDOM.standard_t(4, size=len(FRAME)),
        RANDOM.integers(0, 2, len(FRAME)),
        RANDOM.uniform(size=len(FRAME)) < 0.005,
        np.ones(len(FRAME)),
    ],
    ids=["normal", "exponential", "lognormal", "t", "coin", "rare", "constant"],
)
def test_ordinary_columns_are_no_outliers(values):
    for standardize in (True, "robust"):
        assert np.all(np.asarray(with_column(values, standardize=standardize).columns.spread) > 0)


def test_one_outlier_in_a_short_table():
    frame = FRAME[:40].assign(odd=[1e4, *RANDOM.normal(size=39)])
    with pytest.warns(UserWarning, match="outliers-set-the-scale"):
        pf.Problem.from_frame(frame, client="bank", label="default")


def test_missing_values_of_pandas_own_kinds():
    frame = FRAME.assign(cards=FRAME["cards"].astype("Int64"))
    made = pf.Problem.from_frame(frame, client="bank", label="default")
    np.testing.assert_allclose(made.columns.center[1], frame["cards"].mean())
    frame.loc[3, "cards"] = pd.NA
    with pytest.raises(ValueError, match="column 'cards' must be finite, but 1 of 300 entries"):
        pf.Problem.from_frame(frame, client="bank", label="default")


def test_robust_scaling_is_that_of_a_normal_law():
    values = np.random.default_rng(2).normal(3.0, 2.0, 100_000)
    frame = pd.DataFrame({"bank": 0, "a": values, "default": np.arange(100_000) % 2})
    made = pf.Problem.from_frame(frame, client="bank", label="default", standardize="robust")
    # Standard errors of median and quartile range of a normal law: 1.25 s / sqrt(n), 1.17 s / sqrt(n).
    assert abs(made.columns.center[0] - 3.0) < 5 * 1.25 * 2 / np.sqrt(100_000)
    assert abs(made.columns.spread[0] - 2.0) < 5 * 1.17 * 2 / np.sqrt(100_000)


def test_columns_of_unlike_size_that_are_not_scaled():
    with pytest.warns(UserWarning, match=r"'income' has values of about 5\.\d+e\+04, .*\[columns-not-scaled\]"):
        problem(standardize=False)
    with pytest.raises(ValueError, match=r"standardize must be True, False, .*; got 'iqr'"):
        problem(standardize="iqr")


def test_names_that_collide_are_refused():
    frame = pd.DataFrame({"bank": ["a", "b"] * 4, 0: range(8), "0": range(8, 0, -1), "y": [0, 0, 1, 1] * 2})
    with pytest.raises(ValueError, match="a feature named '0', but another entry of theta has this name"):
        pf.Problem.from_frame(frame, client="bank", label="y")
    frame = frame.drop(columns="0").rename(columns={0: "intercept"})
    with pytest.raises(ValueError, match="or pass intercept=False"):
        pf.Problem.from_frame(frame, client="bank", label="y", intercept=True)
    assert pf.Problem.from_frame(frame, client="bank", label="y", intercept=False).columns.names == ("intercept",)
    with pytest.raises(ValueError, match="client and label are both 'y'"):
        pf.Problem.from_frame(frame, client="y", label="y")
