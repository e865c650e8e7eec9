"""An assessment of one's own table: answers that come from the solvers, tables that people have, refusals by name."""

import dataclasses
import json
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import performative as pf
from performative.assess.measuring import SETTLES
from performative.assess.preparing import prepare, read_label
from performative.assess.problems import problem_of_people
from performative.assess.reading import read_people
from performative.assess.words import SHORT, WORDS
from performative.cli import app
from performative.findings import Finding

RNG = np.random.default_rng(0)
N = 240


def table(n=N, rng=None):
    rng = np.random.default_rng(3) if rng is None else rng
    frame = pd.DataFrame(
        {"debt": rng.normal(5, 2, n), "usage": rng.normal(0, 1, n), "age": rng.integers(20, 70, n) + 0.5}
    )
    risk = 0.5 * (frame.debt - 5) + frame.usage + rng.logistic(size=n)
    return frame.assign(default=np.where(risk > 0, "Yes", "No"), bank=np.where(np.arange(n) % 3, "north", "south"))


@pytest.fixture(scope="module")
def found():
    """Those of class 1 respond; two banks; groups by age."""
    frame = table()
    frame["old"] = np.where(frame.age > 45, "old", "young")
    return pf.assess(
        frame, label="default", client="bank", strategic=["debt", "usage"], strength=0.4, group="old",
        who="positive", penalty=0.05, progress=False,
    )  # fmt: skip


def test_the_verdicts_are_the_certificates(found):
    assert [one.strength for one in found.scenarios] == [0.1, 0.2, 0.4, 0.8, 1.6]
    now = found.scenario
    assert now.verdict == found.certificate.verdict and now.settles == found.certificate.attracting
    assert now.models["stable"].risk == found.certificate.stable_risk
    assert now.models["optimal"].risk <= now.models["stable"].risk <= now.models["static"].risk
    for one in found.scenarios:
        assert one.settles is (one.factor < 1), "the factor decides, at the stable point"
    assert {one.settles for one in found.scenarios} == {True, False}, "the range crosses the border"
    assert now.factor == pytest.approx(found.certificate.contraction)


def test_decisions_by_hand(found):
    """The static model's rates, counted from the table itself."""
    frame = table()
    x = frame[["debt", "usage", "age"]].to_numpy()
    bad = (frame.default == "Yes").to_numpy()
    by_name = {one.name: one for one in found.features}
    theta = np.array([by_name[name].static for name in ("debt", "usage", "age")])
    score = x @ theta + by_name["intercept"].static
    limit = np.quantile(score, 1 - bad.mean())
    spread = x.std(axis=0)
    moved = x - 0.4 * bad[:, None] * np.array([1.0, 1.0, 0.0]) * theta * spread**2
    after = moved @ theta + by_name["intercept"].static
    rates = found.scenario.models["static"]
    assert rates.expected_caught == pytest.approx(np.mean(score[bad] > limit), abs=1e-12)
    assert rates.caught == pytest.approx(np.mean(after[bad] > limit), abs=1e-12)
    assert rates.wrongly == rates.expected_wrongly == pytest.approx(np.mean(score[~bad] > limit))
    assert found.scenario.changed == pytest.approx(np.mean((score > limit)[bad] != (after > limit)[bad]))
    assert found.scenario.overturned == pytest.approx(np.mean(after[bad & (score > limit)] <= limit))
    loss = np.mean(np.logaddexp(0, after) - bad * after) + 0.05 / 2 * np.sum((theta * spread) ** 2)
    assert rates.risk == pytest.approx(loss, rel=1e-6)
    assert by_name["debt"].moves == pytest.approx(-0.4 * theta[0] * spread[0] ** 2)
    shares = (theta * spread)[:2] ** 2
    assert by_name["debt"].share == pytest.approx(shares[0] / shares.sum()) and by_name["age"].share == 0


def test_groups_are_compared_beyond_chance(found):
    rows = {(one.group, one.model): one for one in found.scenario.groups}
    assert set(rows) == {(g, m) for g in ("old", "young") for m in ("static", "stable", "optimal")}
    assert sum(rows[g, "static"].people for g in ("old", "young")) == N
    assert rows["old", "static"].rise == 0, "people with label 0 do not respond here, and the model is the same"
    sure = Finding("answer.groups", "warning", {"model": "stable", "few": ["x"], "most": ["a", 0.2, 0.01],
                                                "least": ["b", 0.0, 0.01], "sure": True, "least_good": 30})  # fmt: skip
    assert "a significant diff" in WORDS.say(sure) and "Too few" in WORDS.say(sure) and SHORT.say(sure) == "a most"


def test_text_html_json_page_frame_and_picture(found, tmp_path):
    text = str(found)
    for part in ("Would the model change my data?", "Would retraining settle?", "ignoring it cost", "debt", "old"):
        assert part in text
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert len(told["scenarios"]) == 5 and {one["code"] for one in told["findings"]} == set(WORDS.sentences)
    page = found.page(tmp_path / "page.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "") and page.count("<picture>") == 4
    assert found._repr_html_().count("<table>") == 2
    assert len(found.frame()) == 15 and found.plot().get_ylabel() == "mean loss once deployed"
    assert isinstance(found, pf.Assessment) and "strength=0.4" in repr(found)


def test_the_command_hands_on_what_was_asked(found, tmp_path, monkeypatch):
    """`tests/cli/test_people_commands.py` runs it whole."""
    heard = {}
    package = sys.modules["performative.assess"]  # the attribute of pf is the function
    monkeypatch.setattr(package, "assess", lambda people, **options: heard.update(options, people=people) or found)
    words = ["assess", "people.csv", "--label", "default", "--client", "bank", "--strategic", "debt, usage",
             "--strength", "0.4", "--group", "old", "--who", "positive", "--page", str(tmp_path / "p.html"),
             "--json"]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert heard["strategic"] == ["debt", "usage"] and heard["strength"] == 0.4 and heard["who"] == "positive"
    assert json.loads(done.stdout)["files"]["page"] == str(tmp_path / "p.html") and (tmp_path / "p.html").exists()
    assert "Who would be" in done.stderr and "caught" in done.stderr


@pytest.mark.slow
def test_where_all_respond_alike_an_intercept_undoes_it():
    one = pf.assess(table(), label="default", strategic=["debt"], ignore=["bank"], progress=False)
    assert one.clients == 1 and all(scenario.settles for scenario in one.scenarios)
    now = one.scenario
    assert now.models["stable"].caught == pytest.approx(now.models["static"].expected_caught)
    assert now.further == pytest.approx(0.0, abs=1e-9) and now.reached == 1
    assert "a new intercept undoes" in str(one)


def test_what_the_certificate_does_not_know_is_not_known():
    """All verdicts but four are that it does not know."""
    from performative.certify.words import WORDS as VERDICTS

    codes = [code.removeprefix("verdict.") for code in VERDICTS.sentences if code.startswith("verdict.")]
    known = {code: SETTLES[code] for code in codes if code in SETTLES}
    assert known == {"proved": True, "settles": True, "settles-nearby": True, "not-contracting": False}
    assert len(codes) > 8
    unknown = Finding("answer.settle", "caution", {
        "strength": 1.0, "settles": None, "verdict": "None.", "reached": None, "small_steps": None, "alike": False,
        "others": [[0.5, True], [1.0, None]],
    })  # fmt: skip
    assert SHORT.say(unknown) == "Unknown" and "1 unknown" in WORDS.say(unknown)


def prepared(frame, **options):
    asked = {"label": "default", "positive": None, "client": None, "strategic": None, "group": None, "ignore": [],
             "rows": 10_000, "scale": "auto", "seed": 0}  # fmt: skip
    return prepare(frame, **(asked | options))


def test_tables_as_people_have_them():
    frame = table().assign(row=range(1, N + 1), same=7, empty=np.nan, member=RNG.random(N) < 0.5)
    frame["usage"] = np.where(np.arange(N) % 10 == 0, np.nan, frame.usage)
    frame.loc[0, "debt"] = 1e7
    frame.loc[1, "default"] = None
    made = prepared(frame, client="bank")
    told = " ".join(made.notes)
    for part in ("'row' numbers the rows", "'same' is constant", "'empty' is empty", "24 missing entries",
                 "1 of 240 rows", "'debt' was clipped at"):  # fmt: skip
        assert part in told, part
    assert made.features == ["debt", "usage", "age", "member"] and made.positive == "Yes"
    assert len(made.frame) == N - 1 and made.frame.debt.max() < 100
    assert not np.isnan(made.frame[made.features].to_numpy()).any()
    kept = prepared(frame, scale="standard", client="bank")
    assert kept.frame.debt.max() == 1e7 and not any("was clipped" in note for note in kept.notes)
    some = prepared(frame.drop(columns="bank"), rows=50)
    assert len(some.frame) == 50 and any("50 of 239 rows" in note for note in some.notes)


def test_words_become_columns():
    frame = table().assign(region=np.where(np.arange(N) % 4 == 0, "east", "west"))
    frame.loc[:4, "region"] = None
    made = prepared(frame, client="bank", group="bank")
    assert {"region=east", "region=(empty)"} <= set(made.features) and "region=west" not in made.features
    assert made.strategic == ("debt", "usage", "age"), "words are nothing that people move"
    assert made.group is not None and set(made.group) == {"north", "south"}


@pytest.mark.parametrize(
    ("values", "positive", "one"),
    [
        (["Yes", "No"], None, "Yes"),
        (["no", "YES "], None, "YES "),
        ([True, False], None, True),
        ([0, 1], None, 1),
        ([1.0, 0.0], None, 1.0),
        (["good", "bad"], "bad", "bad"),
        ([1, 2], "2", 2),
        ([1.0, 2.0], "2", 2.0),
        ([0, 1], 0, 0),
    ],
)
def test_labels_are_read_as_what_they_are(values, positive, one):
    answers, called = read_label(pd.Series(values), "default", positive)
    assert called == one and answers.tolist() == [int(value == one) for value in values]


def with_infinite(frame):
    return frame.assign(debt=np.where(np.arange(len(frame)) == 3, np.inf, frame.debt))


@pytest.mark.parametrize(
    ("change", "options", "told"),
    [
        (lambda f: f, {"label": "defualt"}, "label='defualt' is not a column.*Did you mean 'default'"),
        (lambda f: f, {"client": "banc"}, "client='banc' is not a column.*Did you mean 'bank'"),
        (lambda f: f, {"strategic": ["dept"]}, "strategic='dept' is not a column.*Did you mean 'debt'"),
        (lambda f: f, {"group": "sex"}, "group='sex' is not a column"),
        (lambda f: f, {"group": "debt"}, "group='debt' has 240 values in 240 rows"),
        (lambda f: f, {"client": "default"}, "client='default' is the label"),
        (lambda f: f.assign(default=1), {}, "label='default' is 1 in every row"),
        (lambda f: f.assign(default=range(len(f))), {}, "must have two classes.*240"),
        (lambda f: f.assign(default=None), {}, "is missing in every row"),
        (lambda f: f.assign(default=np.where(f.debt > 5, "good", "bad")), {}, 
            "contains '(good|bad)' and '(good|bad)'; specify which of them is 1: set positive= .* people try to avoid"),
        (lambda f: f, {"positive": "perhaps"}, "positive='perhaps' is not a value"),
        (lambda f: f.assign(name=[f"person {i // 2}" for i in range(len(f))]), {}, "'name' has 120 distinct values"),
        (lambda f: f.assign(day=pd.Timestamp("2024-01-01")).assign(
            day=lambda g: g.day + pd.to_timedelta(range(len(g)), "D")), {}, "column 'day' contains dates"),
        (with_infinite, {}, "column 'debt' must be finite; 1 of 240"),
        (lambda f: f.assign(bank=None), {"client": "bank"}, "client='bank' is missing in 240 of 240"),
        (lambda f: f, {"strategic": ["bank"]}, "column 'bank' is categorical"),
        (lambda f: f.assign(same=1.0), {"strategic": ["same"]}, "column 'same' is not a feature with at least"),
        (lambda f: f, {"strategic": ["bank"], "group": "bank"}, "'bank' is the group, so .*; remove it from strategic"),
        (lambda f: f, {"strategic": ["bank"], "client": "bank"}, "column 'bank' is the client"),
        (lambda f: f, {"strategic": ["default"]}, "column 'default' is the label"),
        (lambda f: f, {"strategic": ["age"], "ignore": ["age"]}, "column 'age' is ignored"),
        (lambda f: f[["default"]], {}, "no feature is left"),
        (lambda f: f[["default", "bank"]], {}, "no numeric column"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(change, options, told):
    with pytest.raises(ValueError, match=told):
        prepared(change(table()), **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"who": "rich"}, 'who must be "everyone" or "positive"'),
        ({"share": 1.5}, "share must lie between 0 and 1"),
        ({"scale": "log"}, 'scale must be "auto", "standard" or "robust"'),
        ({"rows": 0}, "rows must be a whole number"),
        ({"strength": -1.0}, "strength must not be negative"),
        ({"strength": {"north": 1.0}}, "strength has no entry"),
        ({"strategic": 3}, "strategic must be a list"),
        ({"ignore": 3}, "ignore must be a list"),
    ],
)
def test_wrong_arguments_are_named(options, told):
    with pytest.raises(ValueError, match=told):
        pf.assess(table(), **({"label": "default", "client": "bank"} | options))


def test_files_of_every_kind(tmp_path):
    frame = table()
    frame.to_csv(tmp_path / "p.csv", index=False)
    frame.to_parquet(tmp_path / "p.parquet")
    frame.to_csv(tmp_path / "semi.csv", index=False, sep=";", decimal=",")
    frame.to_csv(tmp_path / "points.csv", index=False, sep=";")
    frame.to_csv(tmp_path / "p.csv.gz", index=False)
    import duckdb

    with duckdb.connect(tmp_path / "p.duckdb") as connection:
        connection.register("frame", frame)
        connection.execute("CREATE TABLE folk AS SELECT * FROM frame")
    for name in ("p.csv", "p.parquet", "semi.csv", "points.csv", "p.csv.gz", "p.duckdb#folk"):
        read, _ = read_people(tmp_path / name if "#" not in name else str(tmp_path / name))
        pd.testing.assert_frame_equal(read[frame.columns.tolist()], frame, check_dtype=False)
    (tmp_path / "empty.csv").touch()
    (tmp_path / "latin.csv").write_bytes(b"a,b\n\xe9,1\n")
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n1,2,3\n")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    (tmp_path / "two.csv").write_text("a;a\n1;2\n")
    (tmp_path / "two.tsv").write_text("a\tb\ta\n1\t2\t3\n")
    pd.DataFrame([[1, 2]], columns=["a", "a"]).to_csv(tmp_path / "two.csv.gz", index=False)
    wrong = {"empty.csv": "the file is empty", "latin.csv": "not UTF-8",
             "ragged.csv": "line 3 has 3 fields, 2 are expected", "twice.csv": "occurs twice",
             "two.csv": "occurs twice", "two.tsv": "column 'a' occurs twice; keep one",
             "two.csv.gz": "column 'a' occurs twice; keep one", "none.csv": "no such file"}  # fmt: skip
    for name, told in wrong.items():
        with pytest.raises(ValueError, match=told):
            read_people(tmp_path / name)
    with pytest.raises(ValueError, match="people must be a table with"):
        read_people(3)
    with pytest.raises(ValueError, match="tables by client need client="):
        pf.assess({"a": frame, "b": frame}, label="default")
    both, _ = read_people({"a": frame, "b": frame}, "client")
    assert both.client.tolist() == ["a"] * N + ["b"] * N and both.columns.tolist() == [*frame.columns, "client"]
    with pytest.raises(ValueError, match="there are no rows"):
        problem_of_people(frame.head(0), label="default")


def test_coefficients_are_in_the_units_of_the_table():
    """A column in other units moves as many of these more, and its coefficient is as much smaller; nothing else."""
    frame = table()[["debt", "usage", "default"]]
    problem, _, _ = problem_of_people(frame, label="default")
    other, _, _ = problem_of_people(frame.assign(debt=1000 * frame.debt), label="default")
    from performative.assess.features import features_of

    static = pf.repeated_risk_minimization(problem, np.zeros(3), 1)[1]

    here, there = (features_of(p, {"static": static}, 1.0) for p in (problem, other))
    for one, two in zip(here, there, strict=True):
        times = 1000 if one.name == "debt" else 1
        assert two.moves == pytest.approx(times * one.moves) and two.static == pytest.approx(one.static / times)
        assert one.per_spread == two.per_spread and one.stable is None


def test_a_value_too_large_to_square_is_clipped_or_refused():
    frame = table().drop(columns="bank")
    frame.loc[0, "debt"] = 1e300
    assert prepared(frame).frame.debt.max() < 100
    with pytest.raises(ValueError, match=r"column 'debt' has values of up to 1e\+300, which are too large to scale"):
        problem_of_people(frame, label="default", scale="standard")


def test_columns_may_be_named_by_numbers():
    frame = table().rename(columns={"debt": 0, "usage": 1, "bank": 2, "age": 3})
    made = prepared(frame, strategic=[0], client="2", ignore=[3])
    assert made.strategic == ("0",) and made.client == "2" and made.features == ["0", "1"]
    assert problem_of_people(frame, label="default", strategic=[0], ignore=[2])[1].strategic == ("0",)


@pytest.mark.parametrize("rows, out", [(30, 1), (200, 6)])
def test_outliers_beyond_the_percentiles(rows, out):
    """In a short table, and with more than 1% of outliers, the extreme percentiles are outliers themselves."""
    frame = table(rows)
    frame.loc[: out - 1, "debt"] *= 1e6
    made = prepared(frame, ignore=["bank"])
    ordinary = frame.debt[out:]
    assert made.frame.debt.std() < 2 * ordinary.std()
    low, high = np.quantile(frame.debt, (0.25, 0.75))
    assert made.frame.debt.max() == pytest.approx(high + 3 * (high - low))
    assert any("3 interquartile ranges" in note for note in made.notes)
    np.testing.assert_array_equal(made.frame.debt[out:], ordinary)


def test_where_few_are_refused_few_decisions_can_flip(found):
    """Of 600 people 6 are refused, and all of them get accepted: 1% of decisions, but all refusals."""

    def said(decisions, refusals):
        flips = {"changed": decisions, "overturned": refusals}
        scenarios = tuple(dataclasses.replace(one, **flips) for one in found.scenarios)
        return dataclasses.replace(found, scenarios=scenarios).findings[0]

    rare, hardly = said(0.01, 1.0), said(0.005, 0.05)
    assert rare.severity == "warning" and "yes: 1.0% of decisions, 100.0% of refusals" in SHORT.say(rare)
    assert "Even with strength 0.1, more than 1% of decisions, or 10% of refusals" in WORDS.say(rare)
    assert SHORT.say(hardly) == "Hardly" and "at most 0.5% of decisions and 5.0% of refusals" in WORDS.say(hardly)


def test_groups_that_fare_alike_and_a_single_person():
    alike = Finding("answer.groups", "info", {"model": "stable", "few": [], "most": ["f", 0.0, 0.0],
                                              "least": ["f", 0.0, 0.0], "sure": False, "least_good": 30})  # fmt: skip
    assert WORDS.say(alike).endswith("change by +0.0 points in every group.")
    one = Finding("answer.cost", "info", {
        "lost": 1.0, "lost_error": None, "excess": None, "excess_error": None, "further": None,
        "risks": [1.0, None, None], "rates": [[0.0, 0.0, 0.9], None], "expected": [1.0, 0.1, 0.9],
    })  # fmt: skip
    assert "(-100.0 points, based on one person)" in WORDS.say(one) and SHORT.say(one) == "Nothing significant"
