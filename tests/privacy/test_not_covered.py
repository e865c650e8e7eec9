"""What was worked out from people's rows before a run began is outside of its promise, and the promise says so."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import performative as pf
from performative._base.messages import PerformativeWarning
from performative.cli import app
from performative.privacy import guarantee

DRAWS = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "bank": np.repeat(["north", "south"], [40, 60]),
        "income": DRAWS.normal(50_000.0, 10_000.0, 100),
        "cards": DRAWS.integers(0, 9, 100).astype(float),
        "default": DRAWS.integers(0, 2, 100),
    }
)
KNOWN = {"cards": (4.0, 2.0), "income": (45_000.0, 12_000.0)}
PRIVATE = pf.pcsgd(0.1, clip=1.0, noise_multiplier=4.0, batch=pf.Uniform(5))


def problem(**options):
    return pf.Problem.from_frame(FRAME, client="bank", label="default", **options)


def test_scales_of_these_very_rows_are_told():
    told = guarantee(problem(), PRIVATE)
    assert told.certified and told.not_covered == (
        "features are scaled by the means and standard deviations of these same rows",
    )
    assert guarantee(problem().pooled(), PRIVATE).not_covered == told.not_covered
    same = guarantee(problem(standardize=KNOWN), PRIVATE)
    assert same.spent(10, 1e-5) == told.spent(10, 1e-5)


@pytest.mark.filterwarnings("ignore:.*columns-not-scaled")
@pytest.mark.parametrize("standardize", [False, KNOWN], ids=["none", "given"])
def test_scales_that_looked_at_nobody_are_covered(standardize):
    assert guarantee(problem(standardize=standardize), PRIVATE).not_covered == ()


def test_given_scales_are_used():
    made = problem(standardize=KNOWN)
    south = FRAME[FRAME["bank"] == "south"]
    np.testing.assert_allclose(made.population.x[1, :, 0], (south["income"] - 45_000) / 12_000)
    np.testing.assert_allclose(made.population.x[1, :, 1], (south["cards"] - 4) / 2)
    assert made.columns.center == (45_000.0, 4.0) and made.columns.spread == (12_000.0, 2.0)
    model = LogisticRegression(max_iter=500).fit(FRAME[["income", "cards"]], FRAME["default"])
    scores = made.population.x[1, :60] @ made.columns.start(model)
    np.testing.assert_allclose(scores, model.decision_function(south[["income", "cards"]]), atol=1e-9)


@pytest.mark.parametrize(
    ("standardize", "says"),
    [
        ({"income": (0.0, 1.0)}, r"has no entry for \['cards'\]. Use \(0, 1\)"),
        ({**KNOWN, "incme": (0.0, 1.0)}, "'incme' is not a feature of the table.*income"),
        ({**KNOWN, "cards": (4.0, 0.0)}, r"'cards' needs \(mean, standard deviation > 0\); got \(4.0, 0.0\)"),
        ({**KNOWN, "cards": 4.0}, r"'cards' needs \(mean, standard deviation > 0\); got 4.0"),
        ({**KNOWN, "cards": (np.nan, 1.0)}, "'cards' needs"),
        ("yes", "standardize must be True, False, \"robust\" or {feature: .*got 'yes'"),
    ],
)
def test_scales_that_do_not_fit_are_refused(standardize, says):
    with pytest.raises(ValueError, match=says):
        problem(standardize=standardize)


@pytest.mark.slow
def test_a_run_warns_and_writes_it_down():
    asked = {"rounds": 3, "record": pf.Record(risks=False), "privacy": pf.Privacy(1e-5)}
    with pytest.warns(PerformativeWarning, match=r"epsilon does not cover that features are scaled.*privacy-not-cov"):
        history = pf.run(problem(), PRIVATE, **asked)
    assert "these same rows" in history.meta["privacy"]["not_covered"][0]
    quiet = pf.run(problem(standardize=KNOWN), PRIVATE, **asked)
    assert quiet.meta["privacy"]["not_covered"] == []
    assert quiet["epsilon"][0, -1] == history["epsilon"][0, -1]


@pytest.mark.slow
def test_a_fitted_model_as_a_start_is_told():
    model = LogisticRegression(max_iter=500).fit(FRAME[["income", "cards"]], FRAME["default"])
    told = guarantee(problem(standardize=KNOWN), PRIVATE, theta=model).not_covered
    words = "the start is a fitted LogisticRegression: the people it was fitted to are not protected against that"
    assert told == (words,)
    with pytest.warns(PerformativeWarning, match=r"the start is a fitted LogisticRegression.*\[privacy-not-covered\]"):
        pf.run(
            problem(standardize=KNOWN), PRIVATE, 2, theta=model, record=pf.Record(risks=False), privacy=pf.Privacy(1e-5)
        )
    assert guarantee(problem(standardize=KNOWN), PRIVATE, theta=np.zeros(3)).not_covered == ()


def test_choices_of_ones_own_are_told_in_ones_own_words():
    looked = dataclasses.replace(PRIVATE, from_data="the clip is the median gradient")
    made = dataclasses.replace(problem(standardize=KNOWN), from_data=("outliers were dropped",))
    assert guarantee(made, looked).not_covered == ("outliers were dropped", "the clip is the median gradient")


def test_cases_that_scale_by_their_rows_say_so():
    told = guarantee(pf.cases.credit_default(), PRIVATE).not_covered
    assert len(told) == 1 and "these same rows" in told[0]
    x, y = np.zeros((10, 2)), np.tile([0, 1], 5)
    assert guarantee(pf.cases.credit_default(x, y), PRIVATE).not_covered == ()


def test_words_do_not_compile_again():
    from performative._engine.chunk import run_chunk

    made = problem(standardize=KNOWN)
    pf.run(made, PRIVATE, 3, record=pf.Record(risks=False))
    before = run_chunk.programs
    pf.run(
        dataclasses.replace(made, from_data="x"),
        dataclasses.replace(PRIVATE, from_data="y"),
        3,
        record=pf.Record(risks=False),
    )
    assert run_chunk.programs == before


def test_weights_of_clients_are_assumed_to_be_no_secret():
    noisy = pf.p_fedavg(0.1, channel=pf.channels.ClippedNoise(1.0, 4.0))
    assert any("weights are public" in line for line in guarantee(problem(standardize=KNOWN), noisy).assumes)
    even = dataclasses.replace(problem(standardize=KNOWN), weights=None)
    assert not any("weights are public" in line for line in guarantee(even, noisy).assumes)


def test_the_whole_table_is_everyone():
    whole = pf.pcsgd(0.1, clip=1.0, noise_multiplier=4.0, batch=pf.batches.Whole())
    told = guarantee(problem(standardize=KNOWN), whole).spent(7, 1e-5)
    assert told.epsilon == pf.privacy.spent(4.0, 7, 1e-5).epsilon and told.neighbors == "replace_one"


FILE = """
[problem.frame]
path = "people.csv"
client = "bank"
label = "default"
STANDARDISE
[algorithm]
recipe = "pcsgd"
rate = 0.01
clip = 1.0
noise_multiplier = 4.0
batch = { name = "Uniform", n = 5 }
[run]
rounds = 4
[privacy]
delta = 1e-5
"""


def test_the_command_tells_it(tmp_path):
    FRAME.to_csv(tmp_path / "people.csv", index=False)
    file = tmp_path / "private.toml"
    file.write_text(FILE.replace("STANDARDISE", ""))
    said = CliRunner().invoke(app, ["privacy", "spent", str(file)])
    assert said.exit_code == 0 and "NOT covered: features are scaled" in " ".join(said.stdout.split())
    told = json.loads(CliRunner().invoke(app, ["privacy", "spent", str(file), "--json"]).stdout)
    assert len(told["not_covered"]) == 1
    file.write_text(FILE.replace("STANDARDISE", "standardize = { income = [45000, 12000], cards = [4, 2] }"))
    told = json.loads(CliRunner().invoke(app, ["privacy", "spent", str(file), "--json"]).stdout)
    assert told["not_covered"] == [] and told["epsilon"] < 10


@pytest.mark.parametrize(
    ("batch", "times"),
    [(pf.Uniform(5), 1), (pf.Poisson(0.1, 9), 1), (pf.Shuffled(5), 1), (pf.batches.Whole(), 1), (pf.Fixed(3), 3)],
)
def test_rows_that_are_not_the_problems_count_in_full(batch, times):
    private = pf.pcsgd(0.1, clip=1.0, noise_multiplier=4.0, batch=batch, local_steps=2)
    told = guarantee(problem(standardize=KNOWN), private, unseen_rows=True)
    assert told.spent(5, 1e-5).epsilon == pf.privacy.spent(4.0 / times, 10, 1e-5).epsilon


class Again(pf.batches.AbstractBatch):
    """The same row over and over."""

    def expected(self, population):
        return 5.0

    def draw(self, key, standing_key, population, theta, steps, memory):
        return population.draw(key, (steps, 5), theta, np.zeros((steps, 5), np.int32)), None


def test_a_sampler_of_ones_own_is_not_certified_by_any_way():
    # Dice's conservative bound, and populations without a table, took it for one that draws a row once.
    dice = pf.dicesgd(0.1, clip=1.0, memory_clip=1.0, noise_multiplier=40.0, batch=Again())
    endless = pf.Problem(pf.losses.squared, pf.populations.Gaussian(0.0, 0.0, 1.0))
    for told in (
        guarantee(problem(standardize=KNOWN), dice, conservative=True),
        guarantee(endless, pf.pcsgd(0.1, clip=1.0, noise_multiplier=4.0, batch=Again())),
        guarantee(endless, pf.pcsgd(0.1, clip=1.0, noise_multiplier=4.0, batch=Again()), unseen_rows=True),
    ):
        assert told.why == ("how the batch Again picks rows is not known to the accountant",)


def test_dice_needs_batches_of_a_known_size():
    dice = pf.dicesgd(0.1, clip=1.0, memory_clip=1.0, noise_multiplier=40.0, batch=pf.Poisson(0.1, 9))
    told = guarantee(problem(standardize=KNOWN), dice, conservative=True, unseen_rows=True)
    assert not told.certified and "batches of any size" in told.why[0]
