"""The first page: figures of people, decisions, mistakes and money, and the four sentences made of them."""

import numpy as np
import pandas as pd
import pytest

from performative import audit
from performative.audit import brief_words
from performative.audit.page import page
from performative.audit.rates import wilson

pytestmark = pytest.mark.usefixtures("optimized_programs")

THRESHOLD, ROWS, DEPLOYMENTS = 2.5, 1000, 14


def write_folder(folder, censored=False):
    """Applicants whose income follows the model, with decisions and whether they repaid."""
    rng = np.random.default_rng(1)
    models, people = [], []
    for version in range(DEPLOYMENTS):
        theta = 1.0 + 0.1 * version + 0.4 * rng.normal() * (version > 0)
        models.append({"deployment": f"v{version}", "theta_income": theta, "theta_debt": -0.5})
        income, debt = 2 + 0.5 * theta + rng.normal(size=ROWS), rng.normal(size=ROWS)
        chance = 1 / (1 + np.exp(-(income - 0.5 * theta - 1.5 - debt)))
        score = theta * income - 0.5 * debt
        rows = {"deployment": f"v{version}", "income": income, "debt": debt, "accepted": score >= THRESHOLD}
        people.append(pd.DataFrame(rows).assign(repaid=(rng.uniform(size=ROWS) < chance).astype(float)))
    data = pd.concat(people).assign(accepted=lambda frame: frame["accepted"].astype(int))
    truth = data.copy()
    if censored:
        data.loc[data["accepted"] == 0, "repaid"] = np.nan
    pd.DataFrame(models).to_csv(folder / "deployments.csv", index=False)
    data.to_csv(folder / "data.csv", index=False)
    settings = '[columns]\nlabel = "repaid"\n[decision]\nthreshold = 2.5\naccept = "above"\nqualified = 1\n'
    (folder / "audit.toml").write_text(settings)
    return truth


def mistakes_of(truth, version):
    rows = truth[truth["deployment"] == version]
    return int(np.sum(rows["accepted"] != rows["repaid"])), len(rows)


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decided")
    truth = write_folder(folder)
    return audit.audit_logs(folder, cost=200.0), truth


def test_mistakes_are_counted_and_priced(decided):
    report, truth = decided
    told, last = report.brief, f"v{DEPLOYMENTS - 1}"
    rate = wilson(*mistakes_of(truth, last))
    assert (told.mistakes.value, told.mistakes.low, told.mistakes.high) == pytest.approx(
        (100 * rate.value, 100 * rate.low, 100 * rate.high)
    )
    assert told.money.value == pytest.approx(200 * 1000 * rate.value)
    first = wilson(*mistakes_of(truth, "v0"))
    assert told.change.value == pytest.approx(100 * (rate.value - first.value))
    assert told.change.low < told.change.value < told.change.high


def test_the_column_that_moves_has_its_interval(decided):
    report, _ = decided
    told = report.brief
    assert report.effect and told.column == "income" and told.moved.low < told.moved.value < told.moved.high
    way = np.ptp(report.clients[0].log.theta[:, 0])
    assert told.moved.low < 0.5 * way < told.moved.high


def test_four_sentences_and_a_recommendation_come_first(decided):
    report, _ = decided
    said = report.said("brief")
    assert len(said) == 5 and said[0].startswith("The model changes the people it judges: income moves by")
    assert "than it would have of the people at the start" in said[1] or "no change in acceptance" in said[1]
    assert "at 200 each they cost" in said[2] and "Retraining" in said[3]
    made = page(report).decode()
    assert made.index("In short") < made.index("The statistics behind it") < made.index("Do the data react")
    assert "standard deviations per unit" not in " ".join(said) and "theta" not in " ".join(said[:3])


@pytest.mark.slow
def test_outcomes_of_the_accepted_only_give_bounds(tmp_path):
    truth = write_folder(tmp_path, censored=True)
    report = audit.audit_logs(tmp_path, cost=200.0)
    told, (wrong, count) = report.brief, mistakes_of(truth, f"v{DEPLOYMENTS - 1}")
    assert told.mistakes.bounds and np.isnan(told.mistakes.value)
    assert told.mistakes.low < 100 * wrong / count < told.mistakes.high
    assert told.money.bounds and told.money.high == pytest.approx(10 * 200 * told.mistakes.high)
    assert "outcomes of the rejected are unknown" in report.said("brief")[2]


def test_what_is_not_known_says_why():
    none = {"value": None, "low": None, "high": None, "why": "decisions were not logged", "bounds": False}
    assert brief_words.decisions(none, False) == "Its effect on decisions is unknown: decisions were not logged."
    assert "is unknown: decisions were not logged" in brief_words.mistakes(none, none, none, None)
    people = {"hedged": False, "moved": none, "in_sd": None, "column": "", "client": "", "missed": 0.2, "why": "few"}
    assert brief_words.people(effect=None, **people).endswith("cannot tell whether the model changes the people it "
        "judges: few.")  # fmt: skip
    assert "a shift of 0.2 standard deviations would have been detected" in brief_words.people(effect=False, **people)
    assert "no single column can be named" in brief_words.people(effect=True, **people)


def test_a_cost_is_a_number(tmp_path):
    with pytest.raises(ValueError, match="cost must be a number >= 0"):
        audit.audit_logs(tmp_path, cost=-1.0)
