"""Causal designs: estimators against closed forms and an independent implementation, and what they refuse."""

import dataclasses

import cause_worlds
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from findings_schema import check
from scipy import stats

import performative as pf
from performative.audit.causes.breaks import breaks
from performative.audit.causes.cause import Cause
from performative.audit.causes.density import density_test
from performative.audit.causes.estimate import Refused, two_groups
from performative.audit.causes.local_polynomial import neighbor_variances, one_side, weights
from performative.audit.causes.overlap import _robustness, overlap
from performative.audit.causes.pick import cause_of
from performative.audit.causes.randomized import lin_regression, randomized
from performative.audit.causes.table import Table
from performative.audit.causes.threshold import jump, threshold
from performative.audit.causes.words import DESIGNS, SENTENCES, WORDS

RUN = {"randomized": randomized, "threshold": threshold, "breaks": breaks, "overlap": overlap}


def frame(table: Table) -> pd.DataFrame:
    """A table of the worlds as a user has it."""
    columns = {"outcome": table.outcome, "decision": table.decision, "score": table.score}
    columns |= {"propensity": table.propensity, "randomized": table.randomized}
    columns |= {"deployment": table.deployment, "client": table.client, "time": table.time}
    found = pd.DataFrame({name: values for name, values in columns.items() if values is not None})
    for k, name in enumerate(table.names):
        found[name] = table.features[:, k]
    return found


def asked(table: Table) -> dict:
    """The arguments of `effect` that name its columns."""
    roles = ("outcome", "decision", "score", "propensity", "randomized", "deployment", "client", "time")
    given = {role: role for role in roles if getattr(table, role) is not None}
    return given | {"threshold": table.threshold, "features": list(table.names)}


def rng(seed=0):
    return np.random.default_rng(seed)


# Estimators


def lee_design(seed, n=2000):
    """The polynomial of Calonico, Cattaneo and Titiunik's first simulation, after Lee's election data."""
    r = rng(seed)
    x = 2 * r.beta(2, 4, n) - 1
    below = 0.48 + 1.27 * x + 7.18 * x**2 + 20.21 * x**3 + 21.54 * x**4 + 7.33 * x**5
    above = 0.52 + 0.84 * x - 3 * x**2 + 7.99 * x**3 - 9.01 * x**4 + 3.56 * x**5
    return x, np.where(x < 0, below, above) + 0.1295 * r.normal(size=n)


@pytest.mark.parametrize(
    ("seed", "plain", "corrected", "error", "h", "b"),
    [
        (0, 0.11325609, 0.1125454, 0.02935231, 0.22744383, 0.32730185),
        (1, 0.06691713, 0.06494204, 0.02614545, 0.25212509, 0.40423576),
        (2, 0.09961409, 0.09532821, 0.02579541, 0.19244447, 0.32695497),
        (3, 0.09152993, 0.08709575, 0.03294736, 0.15803953, 0.24697643),
    ],
)
def test_the_jump_is_that_of_an_independent_implementation(seed, plain, corrected, error, h, b):
    """Numbers of rdrobust 2.1.1 (triangular kernel, mserd, three neighbors) on the same rows."""
    (found, standard_error, uncorrected, width), _ = jump(*lee_design(seed))
    np.testing.assert_allclose([uncorrected, found], [plain, corrected], rtol=3e-5)
    np.testing.assert_allclose([standard_error, width.h, width.b], [error, h, b], rtol=1e-4)


def test_local_polynomials_are_exact_on_polynomials():
    x = np.sort(rng().random(40))
    powers = np.array([2.0, -1.0, 0.5, 3.0])
    y = np.polynomial.polynomial.polyval(x, powers)
    for entry in range(4):
        assert weights(x, 0.8, 3, entry) @ y == pytest.approx(powers[entry], rel=1e-7)
    assert not weights(x, 0.5, 1, 0)[x > 0.5].any()


def test_bias_correction_with_one_bandwidth_is_the_local_quadratic():
    x, y = (np.sort(rng(k).random(60)) for k in (0, 1))
    line, curve = weights(x, 0.6, 1, 0), weights(x, 0.6, 2, 2)
    np.testing.assert_allclose((line - (line @ x**2) * curve) @ y, weights(x, 0.6, 2, 0) @ y, rtol=1e-10)


def test_variances_of_neighbors_are_unbiased_on_flat_ground():
    x, y = np.sort(rng(0).random(20_000)), rng(1).normal(size=20_000)
    assert np.mean(neighbor_variances(x, y)) == pytest.approx(1.0, abs=3 * np.sqrt(4 / 20_000))
    side = one_side(np.array([3.0, 1.0, 2.0, 4.0]), np.array([1.0, 1.0, 1.0, 5.0]))
    assert list(side.x) == [1, 2, 3, 4] and side.s2[3] == pytest.approx(0.75 * 16)


def test_the_density_test_keeps_its_level_and_sees_a_heap():
    p = np.array([density_test(rng([1, k]).normal(size=1000) + 0.5).p_value for k in range(300)])
    assert np.mean(p < 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    assert np.mean(p < 0.5) > 0.3  # Bonferroni's, so somewhat below the level, but no more
    x = rng(5).normal(size=2000) + 0.3
    gone = (x < 0) & (x > -0.2)
    # Half of those just below went above; then all of them, which leaves a gap that a polynomial runs through.
    assert density_test(np.where(gone & (rng(6).random(2000) < 0.5), -x, x)).p_value < 1e-4
    assert density_test(np.where(gone, -x, x)).p_value < 1e-6
    found = density_test(rng(6).normal(size=50_000))
    np.testing.assert_allclose([found.below, found.above], stats.norm.pdf(0), rtol=0.1)


def test_two_groups_are_welch():
    a, b = rng(0).normal(size=7), 3 * rng(1).normal(size=5)
    d, error, df = two_groups(a, b)
    told = stats.ttest_ind(a, b, equal_var=False)
    assert d / error == pytest.approx(told.statistic) and df == pytest.approx(told.df)
    d, error, df = two_groups(a, b[:1])
    assert df == 6 and error == pytest.approx(a.std(ddof=1) * np.sqrt(1 / 7 + 1))


def test_without_features_the_regression_is_the_difference_of_means():
    D, y = (rng(0).random(80) < 0.4).astype(float), rng(1).normal(size=80)
    estimate, error, df = lin_regression(y, D, np.empty((80, 0)))
    d, neyman, _ = two_groups(y[D == 1], y[D == 0])
    assert estimate == pytest.approx(d) and error == pytest.approx(neyman) and df == 78


def test_strata_are_compared_within_themselves():
    """With indicators alone the regression is post-stratification: means within strata, weighted by their rows."""
    strata = np.repeat([0, 1, 2], [60, 100, 40])
    D = (rng(0).random(200) < np.array([0.2, 0.5, 0.8])[strata]).astype(float)
    y = rng(1).normal(size=200) + 5.0 * strata
    within = [y[(strata == s) & (D == 1)].mean() - y[(strata == s) & (D == 0)].mean() for s in range(3)]
    dummies = (strata[:, None] == [1, 2]).astype(float)
    assert lin_regression(y, D, dummies)[0] == pytest.approx(np.average(within, weights=[60, 100, 40]))
    found = randomized(Table(y, D, randomized=np.ones(200, bool), deployment=strata))
    assert found.diagnostics["strata"] == 3 and found.estimate == pytest.approx(lin_regression(y, D, dummies)[0])
    assert abs(found.diagnostics["unadjusted"]) > 1.0  # the drift between deployments, which the strata take out


def test_clients_are_the_units_where_clients_were_drawn():
    table, _ = cause_worlds.drawn_clients(rng(0))
    found = randomized(table)
    means = np.array([table.outcome[table.client == c].mean() for c in range(12)])
    treated = np.array([table.decision[table.client == c][0] for c in range(12)]) == 1
    assert found.on == "drawn-clients" and found.diagnostics["df"] < 11
    assert found.estimate == pytest.approx(means[treated].mean() - means[~treated].mean())


def test_breaks_are_exact_without_noise():
    """Clients with levels of their own, a shared path, staggered changes and effects that differ."""
    periods, change = 8, np.array([4, 5, 6, 8, 8, 8, 8])
    tau = np.array([1.0, 2.0, 3.0, 0, 0, 0, 0])
    y = np.arange(7.0)[:, None] + np.sin(np.arange(periods)) * 3
    after = np.arange(periods) >= change[:, None]
    y = y + tau[:, None] * after + 1e-9 * rng().normal(size=y.shape)
    client, time = (part.ravel() for part in np.indices(y.shape))
    found = breaks(Table(y.ravel(), client=client, time=time, deployment=after.astype(int).ravel()))
    assert found.estimate == pytest.approx(2.0)
    study = {line["since"]: line["estimate"] for line in found.diagnostics["event_study"]}
    assert all(abs(study[k]) < 1e-6 for k in range(-4, 0)) and study[0] == pytest.approx(2.0)


def test_a_second_change_ends_the_time_after():
    periods = 9
    model = np.zeros((6, periods), int)
    model[:2, 4:], model[:2, 7:] = 1, 2
    y = np.where(model == 1, 1.0, 0.0) + np.where(model == 2, 100.0, 0.0) + 1e-9 * rng().normal(size=model.shape)
    client, time = (part.ravel() for part in np.indices(y.shape))
    assert breaks(Table(y.ravel(), client=client, time=time, deployment=model.ravel())).estimate == pytest.approx(1.0)


def test_logged_chances_take_out_a_hidden_cause():
    table, truth = cause_worlds.policies(rng(3), n=4000, logged=True, hidden=1.0)
    logged, guessed = (
        cause_of(table, "y", "overlap"),
        cause_of(dataclasses.replace(table, propensity=None), "y", "overlap"),
    )
    assert logged.interval[0] < truth["overlap"] < logged.interval[1]
    assert guessed.interval[0] > truth["overlap"], "a hidden cause cannot be seen, and the caution says so"
    assert [one.code for one in guessed.findings if one.severity == "caution"] == ["caution.hidden-causes"]
    assert not [one for one in logged.findings if one.severity == "caution"]


def test_users_may_bring_their_own_models():
    from sklearn.linear_model import LinearRegression, LogisticRegression

    table, truth = cause_worlds.policies(rng(4), n=3000)
    options = {"outcome_model": LinearRegression(), "propensity_model": LogisticRegression()}
    found = cause_of(table, "y", "overlap", options=options)
    assert abs(found.estimate - truth["overlap"]) < 4 * found.standard_error
    assert found.estimate != cause_of(table, "y", "overlap").estimate


def test_the_robustness_value_is_the_share_that_explains_the_estimate_away():
    residual, w, tau = rng(0).normal(size=500), 1 / rng(1).uniform(0.2, 0.8, 500), 0.7
    r = _robustness(tau, residual, w)
    S = np.sqrt(np.mean(residual**2) * np.mean(w**2))
    assert S * r / np.sqrt(1 - r) == pytest.approx(tau) and 0 < r < 1


# What is refused

N = 400
D = (rng(9).random(N) < 0.5).astype(float)
Y = rng(8).normal(size=N)
S = rng(7).normal(size=N)
ALL = np.ones(N, bool)
HALF = (np.arange(N) < 200).astype(float)
THIN = np.where(HALF == 1, np.arange(N) % 3 == 0, np.arange(N) % 50 == 0).astype(float)
STEP = (S >= 0).astype(float)
SORTED = np.where((S < 0) & (S > -0.3), -S, S)


def panel(treated=3, controls=4, before=4, **options):
    table, _ = cause_worlds.changes(rng(2), treated + controls, treated, before + 4, staggered=False, **options)
    return table


@pytest.mark.parametrize(
    ("design", "table", "reason"),
    [
        ("randomized", Table(Y), "no-decision"),
        ("randomized", Table(Y, D), "not-randomized"),
        ("randomized", Table(Y, D, randomized=~ALL), "nothing-drawn"),
        ("randomized", Table(Y[:30], D[:30], randomized=ALL[:30]), "few-drawn"),
        ("randomized", Table(Y, D, randomized=ALL, features=(D + 0.5 * S)[:, None], names=("x",)), "unbalanced"),
        ("randomized", Table(Y, D, randomized=ALL, propensity=np.full(N, 0.3)), "share-mismatch"),
        ("randomized", Table(np.where(D == 1, Y, np.nan), D, randomized=ALL), "missing-by-decision"),
        ("randomized", Table(np.where(np.arange(N) % 5, Y, np.nan), D, randomized=ALL), "missing"),
        ("randomized", Table(Y, HALF, randomized=ALL, client=np.arange(N) // 200), "few-drawn-clients"),
        ("randomized", Table(Y, THIN, randomized=ALL, deployment=np.arange(N) // 20), "thin-strata"),
        ("threshold", Table(Y, D), "no-threshold"),
        ("threshold", Table(Y, D, S, 0.0), "fuzzy"),
        ("threshold", Table(Y, np.zeros(N), S, 0.0), "one-decision"),
        ("threshold", Table(Y, (S >= 1.5).astype(float), S, 1.5), "few-at-threshold"),
        ("threshold", Table(Y, STEP, np.where(S >= 0, 1.0, -1.0), 0.0), "few-scores"),
        ("threshold", Table(Y, SORTED >= 0, SORTED, 0.0), "manipulation"),
        ("threshold", Table(Y, STEP, S, 0.0, features=(STEP + 0.1 * Y)[:, None], names=("x",)), "features-jump"),
        ("overlap", Table(Y), "no-decision"),
        ("overlap", Table(Y, D), "nothing-known"),
        ("overlap", Table(Y, np.ones(N), features=S[:, None]), "one-decision"),
        ("overlap", Table(Y, STEP, S, 0.0), "no-overlap-step"),
        ("overlap", Table(Y, STEP, features=np.column_stack([S, Y]), names=("a", "b")), "no-overlap"),
        ("overlap", Table(Y, STEP, propensity=STEP), "no-overlap-logged"),
        ("overlap", Table(Y, D, propensity=np.full(N, 0.25)), "propensity-mismatch"),
        ("overlap", Table(Y[:60], D[:60], features=S[:60, None], names=("x",)), "few-overlap"),
        ("breaks", Table(Y), "no-panel"),
        ("breaks", panel(treated=0, controls=6), "no-break"),
        ("breaks", panel(treated=5, controls=2), "no-controls"),
        ("breaks", panel(controls=6).where(panel(controls=6).time >= 2), "short-before"),
        ("breaks", panel().where((panel().client != 1) | (panel().time != 2)), "empty-cells"),
        ("breaks", dataclasses.replace(panel(), deployment=np.arange(panel().rows) % 2), "mixed-models"),
        ("breaks", panel(trend=3.0), "pretrends"),
    ],
)  # fmt: skip
def test_a_design_is_refused_with_the_reason(design, table, reason):
    if design == "breaks" and reason == "short-before":
        table = dataclasses.replace(table, time=table.time - 2)
    with pytest.raises(Refused) as told:
        RUN[design](table)
    assert told.value.finding.code == f"refused.{reason}", told.value.finding
    assert WORDS.say(told.value.finding)


def test_manipulation_is_refused():
    table, _ = cause_worlds.at_threshold(rng(0), sorting=0.25)
    found = cause_of(table, "y", "threshold")
    assert not found.identified and "pile up at the threshold" in found.refusals["threshold"]


def test_every_refusal_of_the_code_has_words_and_a_test():
    import inspect
    import re

    source = "".join(inspect.getsource(inspect.getmodule(run)) for run in RUN.values())
    source += inspect.getsource(inspect.getmodule(two_groups))
    given = set(re.findall(r'Refused\(\s*"([\w-]+)"', source))
    told = {code.removeprefix("refused.") for code in SENTENCES if code.startswith("refused.")} - {"not-asked"}
    assert given == told


# One answer from a frame


@pytest.mark.parametrize("make", [pd.DataFrame, pa.Table.from_pandas], ids=["pandas", "pyarrow"])
def test_frames_of_either_kind_give_the_answer_of_the_arrays(make):
    table, _ = cause_worlds.randomized(rng(0))
    found = pf.audit.causes.effect(make(frame(table)), **asked(table))
    assert isinstance(found, Cause) and found.design == "randomized" and found.identified
    assert found.estimate == cause_of(table, "outcome").estimate
    assert set(found.refusals) == set(DESIGNS) - {"randomized"}
    assert "made at random" in found.assumption and found.interval[0] < found.estimate < found.interval[1]


@pytest.mark.parametrize(
    ("world", "design"),
    [
        ("threshold, bending outcome", "threshold"),
        ("policies, known causes", "overlap"),
        ("policies, hidden cause, chances logged", "overlap"),
        ("breaks, controls, drift", "breaks"),
        ("threshold, people sort themselves", None),
        ("policies, chances logged wrongly", None),
        ("breaks, all clients change", None),
    ],
)
def test_the_design_is_the_one_that_the_data_identify(world, design):
    table, _ = cause_worlds.WORLDS[world].make(rng(1))
    found = pf.audit.causes.effect(frame(table), **asked(table))
    assert found.design == design and found.identified == (design is not None)
    told = found.to_dict()
    check(told["findings"], WORDS)
    assert told["design"] == design and set(told["refusals"]) == set(DESIGNS) - {design}
    assert str(found).startswith("The effect of the model on outcome cannot be estimated" if design is None else "")
    if design is None:
        assert np.isnan(found.estimate) and told["estimate"] is None and told["interval"] == [None, None]


def test_several_outcomes_at_once():
    table, _ = cause_worlds.randomized(rng(0))
    columns = {key: value for key, value in asked(table).items() if key != "outcome"}
    found = pf.audit.causes.causes_of(frame(table), columns, ["outcome", "a"])
    assert list(found) == ["outcome", "a"]
    # Features came before the decision, so the decision cannot have moved them.
    assert found["a"].interval[0] < 0 < found["a"].interval[1] and found["outcome"].interval[0] > 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"outcome": "outcom"}, "outcome='outcom' is not a column of the frame. Did you mean 'outcome'"),
        ({"features": ["a", "nothing"]}, "features='nothing' is not a column"),
        ({"features": "a"}, "features must be a list, each a text"),
        ({"features": ["decision"]}, "has two roles"),
        ({"decision": "score"}, "must contain 0 and 1"),
        ({"propensity": "score"}, r"must lie in \[0, 1\]"),
        ({"threshold": np.nan}, "threshold must be one number or None"),
        ({"threshold": np.inf}, "threshold must be a finite number"),
        ({"design": "randomised"}, "unknown design 'randomised'. Did you mean 'randomized'"),
        ({"level": 95}, "level must lie between 0 and 1"),
        ({"score": "words"}, "must be numeric"),
        ({"score": "gaps"}, "is missing"),
        ({"client": "gaps"}, "is missing in some rows"),
    ],
)
def test_wrong_input_is_named(change, told):
    table, _ = cause_worlds.randomized(rng(0))
    rows = frame(table).assign(words="x", gaps=lambda t: t["score"].where(t["score"] > 0))
    with pytest.raises(ValueError, match=told):
        pf.audit.causes.effect(rows, **(asked(table) | change))


def test_what_is_no_frame_is_refused():
    with pytest.raises(ValueError, match="frame must be a data frame"):
        pf.audit.causes.effect([1, 2, 3], outcome="y")
    with pytest.raises(ValueError, match="frame has no rows"):
        pf.audit.causes.effect(pd.DataFrame({"y": []}), outcome="y")
