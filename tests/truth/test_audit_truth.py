"""Audits against worlds whose truth is known: does anybody react, which way, does retraining settle?

Tests are made at a level so small that chance finds nothing in these many worlds. That no reaction was found is not
that there is none: it counts as "does not know" where people react by less than the report says it would have seen.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from performative.audit.effect import effect_arrays
from performative.audit.report import audit_logs

sys.path.insert(0, str(Path(__file__).parents[1] / "audit"))

import folders
import worlds

LEVEL = 1e-5
LABELLED = '[labels]\nmissing = "labeled"\n'


def check_means(tally, count, seed, every=1):
    """The test itself on logs of means, under every drift, response and way of training, `count` worlds each.

    `every` takes one in so many of their combinations.
    """
    for k, drift in enumerate(worlds.DRIFTS):
        for j, training in enumerate(worlds.TRAINING):
            for i, response in enumerate(worlds.MAPS):
                if (i + j + k) % every:
                    continue
                made = worlds.make(
                    seed + 100 * k + 10 * j + i, count, T=20, rows=2000, response=response, drift=drift,
                    drift_size=0.1, training=training, explore=0.3,
                )  # fmt: skip
                y, variance = made.series
                found = effect_arrays(y, variance, made.theta, made.time, "smooth")
                sure = np.maximum(found.p_value, found.p_any_drift) <= LEVEL  # else the verdict is hedged
                for w, reacts in enumerate(sure):
                    truth = bool(np.any(made.B[w]))
                    at = f"drift {drift}, training {training}, response {response}, world {w}"
                    tally("audit of means: people react", True if reacts else None, truth, at)


def test_logs_of_means(tally):
    check_means(tally, 1, seed=0, every=3)


@pytest.mark.slow
def test_many_logs_of_means(tally):
    check_means(tally, 20, seed=10_000)


def lending(seed):
    """How a folder of applications is drawn: who reacts, who is accepted below the threshold, whose label is seen."""
    rng = np.random.default_rng(seed)
    chance = (None, 0.2, None)[seed % 3]
    return {
        "react": (0.0, 0.0, 0.6)[seed // 3 % 3],
        "chance": chance,
        "every": seed % 3 == 2,
        "blind": rng.choice([0.0, 0.1]),
        "drift": rng.choice([0.0, 0.05, 0.1]),
        "toml": LABELLED if seed % 2 else "",
        "drop": ((), ("propensity",), ("score", "propensity"))[rng.integers(3)],
    }


def check_lending(tally, folder, seeds, rows, T):
    for seed in seeds:
        drawn = lending(seed)
        folders.applicants_folder(folder / str(seed), T=T, rows=rows, seed=seed, **drawn)
        report = audit_logs(folder / str(seed), level=LEVEL)
        reacts, said = drawn["react"] > 0, report.effect
        if said is False and reacts:
            # Income reacts to its parameter by `react`, in units of its standard deviation of 1.
            could = min(one.detectable[0, 0] for one in report.clients)
            said = None if drawn["react"] < 2 * could else False
        tally("audit of lending: people react", said, reacts, f"seed {seed}, {drawn}")
        for one in report.clients:
            for line in one.response.directions if one.reacts else ():
                own = (line.column, line.parameter) in {("income", "income"), ("debt", "debt")}
                if own and reacts:
                    tally("audit of lending: which way", line.slope > 0, True, f"seed {seed}, {drawn}")
                if line.column in ("income", "debt") and not own:
                    tally("audit of lending: what answers to what", False, True, f"seed {seed}, {line}")
        if report.groups is not None:
            credited = bool(report.groups.improvement)
            tally("audit of lending: who gains by reacting", credited or None, reacts, f"seed {seed}, {drawn}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 8])
def test_lending(seed, tally, tmp_path):
    check_lending(tally, tmp_path, (seed,), rows=400, T=14)


@pytest.mark.slow
def test_much_lending(tally, tmp_path):
    check_lending(tally, tmp_path, range(100, 136), rows=800, T=14)


@pytest.mark.slow
def test_a_large_portfolio_of_the_accepted(tally, tmp_path):
    """12 deployments, 4 regions of 8,000 people, incomes that drift, labels of the accepted alone; nobody reacts."""
    for seed, toml in enumerate(("", LABELLED) * 3):
        folders.applicants_folder(
            tmp_path / str(seed), toml, T=12, rows=8000, clients=4, drop=("score", "propensity"), seed=seed
        )
        report = audit_logs(tmp_path / str(seed))
        tally("audit of a large portfolio: people react", report.effect, False, f"seed {seed}, {toml}")


def check_outlook(tally, folder, seeds):
    """Clients N(m_i + eps_i theta, 1): retraining multiplies errors by the mean of eps_i."""
    for seed in seeds:
        mean = (0.3, 0.6, 0.9, 1.1, 1.4)[seed % 5]
        eps = mean + np.array([-0.2, 0.0, 0.2])
        stable = folders.squared_folder(folder / str(seed), eps=tuple(eps), T=24, rows=3000, explore=1.0, seed=seed)
        report = audit_logs(folder / str(seed), level=LEVEL)
        tally("audit outlook: people react", report.effect or None, True, f"seed {seed}")
        ahead = report.prospect.outlook
        if ahead is None:
            tally("audit outlook: retraining settles", None, mean < 1, f"seed {seed}")
            continue
        low, high = ahead.contraction_limits
        said = None if low <= 1 <= high else ahead.contracts
        tally("audit outlook: retraining settles", said, mean < 1, f"seed {seed}, eps {mean}: {low:.3f} .. {high:.3f}")
        limits = ahead.stable_limits
        inside = bool(np.all((limits[0] <= stable) & (stable <= limits[1])))
        tally("audit outlook: the interval holds the point", inside, True, f"seed {seed}, {limits}, {stable}")


def test_outlooks(tally, tmp_path):
    check_outlook(tally, tmp_path, (0, 3))


@pytest.mark.slow
def test_many_outlooks(tally, tmp_path):
    check_outlook(tally, tmp_path, range(100, 140))
