"""Parts of somebody else's that say what they are: every analysis reads it, and says whose word it is."""

import dataclasses
import json
import math

import foreign_parts
import numpy as np
import pytest
from foreign_parts import Capped, Gentle, Grudging, Handful, Hush, Lottery, Shelf, Total, table

import performative as pf
from performative.cli.summary import privacy_lines
from performative.config import load_experiment
from performative.draws import Everyone, WithoutReplacement
from performative.facts import chain, declared, is_ours, relying
from performative.privacy import attack, guarantee, spent
from performative.privacy.attack.target import read_target

DELTA = 1e-4
PEOPLE = pf.Problem(pf.losses.squared, Shelf(table()))
OURS = pf.Problem(pf.losses.squared, pf.populations.Database(table(), pf.populations.shifts.Linear(0.2)))
ROWS = pf.p_fedavg(
    0.1, estimator=Capped(1.0, 2.0), batch=Handful(5), participation=Lottery(2), aggregator=Total(), deploy="round"
)
CLIENTS = pf.p_fedavg(0.1, channel=Hush(1.0, 2.0), participation=Lottery(2), aggregator=Total())


def word(kind, fact):
    return f"{kind.__module__}.{kind.__qualname__}: {fact}"


def test_a_promise_to_people_rests_on_the_authors_word():
    promise = guarantee(PEOPLE, ROWS)
    assert promise.promised and not promise.certified and promise.verdict == "certified on the author's word"
    assert set(promise.on_word) == {
        word(Shelf, "equal_rows"), word(Handful, "sampling"), word(Capped, "bound"), word(Total, "ignores_data"),
        word(Lottery, "ignores_data"),
    }  # fmt: skip
    plain = guarantee(OURS, pf.pcsgd(0.1, 1.0, 2.0, batch=pf.Uniform(5), participation=pf.SchemeTwo(2)))
    assert plain.certified and plain.verdict == "certified" and plain.on_word == ()
    assert promise.releases == plain.releases  # the same words, the same numbers


def test_a_promise_to_clients_rests_on_the_authors_word():
    promise = guarantee(PEOPLE, CLIENTS)
    assert promise.unit == "client" and promise.verdict == "certified on the author's word"
    assert {word(Hush, "bound"), word(Total, "uses_sums_only"), word(Lottery, "sampling")} < set(promise.on_word)
    plain = guarantee(OURS, pf.p_fedavg(0.1, channel=pf.channels.ClippedNoise(1.0, 2.0), participation=pf.SchemeTwo(2)))
    assert promise.releases == plain.releases and promise.releases[0].sampling == WithoutReplacement(2, 4)


def test_one_foreign_part_among_ours_is_enough():
    mixed = pf.pcsgd(0.1, 1.0, 2.0, batch=Handful(5))
    assert guarantee(OURS, mixed).on_word == (word(Handful, "sampling"),)


def without_facts(part):
    """The same part as an instance of a subclass that declares nothing."""
    kind = type("Changed", (type(part),), {"__module__": __name__})
    return kind(*(getattr(part, field.name) for field in dataclasses.fields(part)))


@pytest.mark.parametrize("slot", ["estimator", "batch", "participation", "aggregator"])
def test_a_subclass_inherits_no_facts(slot):
    algorithm = dataclasses.replace(ROWS, **{slot: without_facts(getattr(ROWS, slot))})
    promise = guarantee(PEOPLE, algorithm)
    assert not promise.promised and "Changed" in promise.why[0] and promise.on_word == ()
    assert promise.spent(1, DELTA).epsilon == math.inf


def test_a_subclass_of_people_and_of_a_channel_inherits_no_facts():
    people = pf.Problem(pf.losses.squared, without_facts(PEOPLE.population))
    assert "how Changed picks people" in guarantee(people, ROWS).why[0]
    silent = dataclasses.replace(CLIENTS, channel=without_facts(CLIENTS.channel))
    assert "Changed" in guarantee(PEOPLE, silent).why[0]


def test_a_wrapper_asks_what_it_holds_by_the_same_rule():
    held = dataclasses.replace(ROWS, estimator=Gentle(ROWS.estimator))
    assert {word(Gentle, "bound"), word(Capped, "bound")} < set(guarantee(PEOPLE, held).on_word)
    ours = dataclasses.replace(ROWS, estimator=Gentle(pf.estimators.Clipped(1.0, 2.0)))
    assert word(Gentle, "bound") in guarantee(PEOPLE, ours).on_word
    for estimator in (Gentle(without_facts(ROWS.estimator)), pf.estimators.Prox(without_facts(ROWS.estimator), 0.1)):
        assert not guarantee(PEOPLE, dataclasses.replace(ROWS, estimator=estimator)).promised


def test_a_false_name_makes_no_part_ours():
    kind = type("Fixed", (Handful,), {"__module__": "performative.batches", "sampling": Handful.sampling})
    assert not is_ours(kind) and is_ours(pf.Fixed)
    promise = guarantee(OURS, pf.pcsgd(0.1, 1.0, 2.0, batch=kind(5)))
    assert promise.promised and not promise.certified


def test_a_fact_that_was_not_read_is_nobodys_word():
    with relying() as heard:
        assert declared(Total(), "uses_sums_only") and declared(pf.aggregators.Mean(), "uses_sums_only")
        assert declared(Total(), "is_plain") is None
    assert heard == [word(Total, "uses_sums_only")]


def test_memory_is_what_init_returns():
    """Who was drawn is hidden only where nobody remembers it."""
    for people, hidden in ((Shelf(table()), True), (Grudging(table()), False)):
        (each,) = guarantee(pf.Problem(pf.losses.squared, people), CLIENTS).releases
        assert (each.sampling == WithoutReplacement(2, 4)) is hidden and (each.sampling == Everyone()) is not hidden


def test_whoever_sees_more_than_models_voids_it_by_name():
    promise = guarantee(OURS, pf.pcsgd(0.1, 1.0, 2.0), seen=("metric 'spread' may read uploads",))
    assert not promise.promised and promise.why == ("metric 'spread' may read uploads",)


def test_numbers_alone_say_whose_word_they_are():
    ours, theirs = (spent(2.0, 10, DELTA, batch=batch, rows=50) for batch in (pf.Uniform(5), Handful(5)))
    assert theirs.epsilon == ours.epsilon and word(Handful, "sampling") in theirs.note and ours.note == ""
    cohort = spent(2.0, 10, DELTA, participation=Lottery(2), clients=50)
    assert cohort.epsilon == spent(2.0, 10, DELTA, participation=pf.SchemeTwo(2), clients=50).epsilon
    with pytest.raises(ValueError, match="how the batch Changed picks rows"):
        spent(2.0, 10, DELTA, batch=without_facts(Handful(5)), rows=50)


@pytest.mark.slow
def test_runs_ledgers_reports_and_the_terminal_tell_it(tmp_path):
    history = pf.run(
        PEOPLE,
        ROWS,
        rounds=3,
        theta=0.0,
        privacy=pf.Privacy(DELTA, 100.0),
        checkpoint=tmp_path / "run",
        record=pf.Record(risks=False),
    )
    told = history.meta["privacy"]
    assert told["verdict"] == "certified on the author's word" and word(Capped, "bound") in told["on_word"]
    assert word(Capped, "bound") in json.loads((tmp_path / "run" / "ledger.json").read_text())["on_word"]
    assert any("author's word" in line and word(Capped, "bound") in line for line in privacy_lines(told))
    page = pf.report.write(history, tmp_path / "page.html").read_text()
    assert "certified on the author&#x27;s word" in page or "certified on the author's word" in page
    assert word(Capped, "bound") in page


@pytest.mark.slow
def test_attacks_believe_what_parts_say_and_try_it():
    target = read_target(ROWS, 50, None)
    assert target.exact and target.law == WithoutReplacement(5, 50) and (target.clip, target.noise) == (1.0, 2.0)
    found = attack.neighbors(ROWS, rows=20, rounds=5, delta=1e-2, repeats=64)
    assert not found.alarm and 0 < found.claimed < math.inf
    sure = dataclasses.replace(ROWS, batch=Handful(2))
    loud = attack.neighbors(sure, rows=2, rounds=50, delta=1e-2, repeats=400, claimed=0.01)
    assert loud.alarm


@pytest.mark.slow
def test_certificates_take_the_sensitivity_that_is_told():
    told, ours = pf.certify(PEOPLE, theta=0.0), pf.certify(OURS, theta=0.0)
    assert told.sensitivity_source == ours.sensitivity_source == "analytic"
    np.testing.assert_allclose(told.sensitivity, ours.sensitivity)
    assert ours.proved and ours.on_word == () and "proved." in ours.verdict
    assert not told.proved and told.unique is None and "proved on the author's word" in told.verdict
    assert told.on_word == (word(Shelf, "translations"),) and word(Shelf, "translations") in str(told)
    silent = pf.certify(pf.Problem(pf.losses.squared, without_facts(PEOPLE.population)), theta=0.0, samples=64)
    assert silent.sensitivity_source == "estimated" and silent.on_word == ()


@pytest.mark.slow
def test_plans_try_what_makes_them_exact():
    """Moments are those of rounds that were tried, and rest on nobody's word."""
    plan = pf.plan(PEOPLE, pf.Cost(), 0.5, theta=5.0, local_steps=(1,), batches=(2,))
    assert plan.method == "exact moments" and not any("word" in note for note in plan.notes)


def test_works_behind_them_are_cited():
    text = pf.cite(PEOPLE, ROWS)
    assert foreign_parts.BOOK in text and "abadi2016deep" in text and "Not from this package" not in text
    assert "sources: Changed" in pf.cite(without_facts(ROWS.batch))
    history = pf.run(PEOPLE, ROWS, rounds=1, theta=0.0, record=pf.Record(risks=False))
    assert "abadi2016deep" in pf.cite(history)


FILE = """
[problem]
loss = "squared"
[problem.population]
name = "Database"
z = [[0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]]
[algorithm]
recipe = "pcsgd"
rate = 0.1
clip = 1.0
noise_multiplier = 2.0
batch = { name = "Uniform", n = 2 }
[run]
rounds = 3
theta = 0.0
[privacy]
delta = 1e-4
"""


def test_parts_join_an_experiment_from_a_file(tmp_path):
    (tmp_path / "run.toml").write_text(FILE)
    read = load_experiment(tmp_path / "run.toml")
    assert guarantee(read.problem, read.algorithm).certified
    mine = dataclasses.replace(read.algorithm, batch=Handful(2))
    history = pf.run(read.problem, mine, **{**read.options, "record": pf.Record(risks=False)})
    assert history.meta["privacy"]["on_word"] == [word(Handful, "sampling")]
    assert "Handful" in json.dumps(history.meta["config"])


def test_the_chain_holds_all_parts():
    lazy = pf.LocalWork(pf.FirstK(2, pf.participation.Exponential(1.0)), pf.participation.UniformSteps(1, 3))
    assert [type(part).__name__ for part in chain(lazy)] == ["LocalWork", "FirstK", "Exponential", "UniformSteps"]
    gaussian = pf.populations.Gaussian(np.zeros(2), 0.1, 1.0)
    nested = pf.populations.Mixture(
        (gaussian, pf.populations.Sluggish(gaussian, 0.5)), pf.populations.shares.Constant([0.5, 0.5])
    )
    names = [type(part).__name__ for part in chain(pf.Problem(pf.losses.logistic(0.1), nested))]
    assert names == ["Logistic", "Mixture", "Gaussian", "Sluggish", "Gaussian", "Constant"]
    assert len(chain(nested, pf.populations.AbstractPopulation)) == 4
