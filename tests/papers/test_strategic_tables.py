"""Strategic classification on real tables: what four algorithms reach with the papers' constants, and where it shows.

Run with -s to see the tables. Constants of Jin et al. 2024 (P-FedAvg), Zheng et al. 2024 (PROFL) and Li, Yemini and
Wai 2024 (PCSGD, DiceSGD). All start at the static baseline: a model is in force, and its makers wake up.
"""

import math
import os
from pathlib import Path

import pytest

import performative as pf
from performative.privacy.printed import corollary_3_6_as_printed
from performative.scoreboard import scoreboard

BESIDE = Path(__file__).parents[3] / "shared" / "data"
CASES = {"credit": pf.cases.strategic_credit, "adult": pf.cases.strategic_adult}
STEPS = 100_000
# m, delta = 1 / m and epsilon = 1 of the paper; DiceSGD has sqrt(96) times the noise.
NOISE = corollary_3_6_as_printed(1.0, 1 / 15_776, STEPS, 15_776, 1.0).noise_multiplier

pytestmark = pytest.mark.usefixtures("optimised_programs")


@pytest.fixture(scope="module")
def published():
    """The folder with the published files: PERFORMATIVE_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("PERFORMATIVE_DATA") or BESIDE)
    for name in ("give_me_some_credit", "adult"):
        if not (folder / name).is_dir():
            pytest.skip(f"no {name} in {folder}; set PERFORMATIVE_DATA to the folder that holds it")
    return folder


def algorithms(problem, data, effect):
    """With the constants as printed; "strong" takes larger steps for PROFL, which has too little time otherwise."""
    features, rows = problem.population.model_shape()[0], problem.population.capacity
    printed, size = {"credit": (0.01, 5812), "adult": (0.03, 2368)}[data]
    rate, batch = printed if effect == "paper" else 0.1, pf.Fixed(min(size if effect == "paper" else 1000, rows))
    window = 25 if features <= 12 else 35  # H is misprinted, and must be well above the features
    shared = {"local_steps": 5, "batch": batch}
    pathwise = pf.estimators.Performative(window, term="pathwise")
    # The paper's gamma_t = 50 / (5000 + t) starts at t = 1, ours at t = 0.
    private = pf.schedules.harmonic(50.0, 5001.0)
    few = pf.SchemeTwo(5) if problem.clients >= 5 else pf.Full()
    return {
        "p_fedavg": pf.p_fedavg(
            pf.schedules.harmonic(50.0, 10_000.0), local_steps=5, batch=pf.Fixed(4), participation=few
        ),
        "profl": pf.profl(rate, window, **shared),
        "pofl, pathwise": pf.pofl(rate, window, estimator=pathwise, **shared),
        "pcsgd": pf.pcsgd(private, clip=1.0, noise_multiplier=NOISE),
        "dicesgd": pf.dicesgd(private, clip=1.0, memory_clip=1.0, noise_multiplier=math.sqrt(96) * NOISE),
    }


ROUNDS = {"p_fedavg": 10_000, "profl": 60, "pofl, pathwise": 60, "pcsgd": STEPS, "dicesgd": STEPS}


def make(published, data, paper, effect, repeats=4):
    problem, held_out = CASES[data](paper, effect, path=published)
    board = scoreboard(
        problem, algorithms(problem, data, effect), ROUNDS, theta="static", held_out=held_out, repeats=repeats,
        progress=False,
    )  # fmt: skip
    print(f"\n{data}, {paper}, {effect}\n{board}")
    return board
