"""Asynchrony beside everything else: executors, chunks, checkpoints, sweeps, memories, clients' own models."""

from pathlib import Path

import numpy as np
import pytest

import performative as pf

LATENCY = pf.participation.Exponential([0.5, 1.0, 2.0, 4.0, 8.0, 1.5])
PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Sluggish(pf.populations.Gaussian(np.arange(6.0), 0.4, 0.5), 0.5))
PART = pf.Asynchronous(2, 5, LATENCY, staleness=0.5, limit=12)
METHODS = {
    "plain": pf.p_fedavg(0.1, local_steps=2, participation=PART),
    "lazy, late": pf.p_fedavg(0.1, participation=PART, deploy=pf.Late(2)),
    "scaffold": pf.scaffold(0.1, local_steps=2, participation=PART),
    "varp": pf.fedvarp(0.1, participation=PART),
    "own models": pf.p_fedavg(0.1, participation=PART, sharing=pf.sharing.Ditto(1.0)),
    "work": pf.fednova(0.1, participation=pf.LocalWork(PART, [1, 2, 1, 3, 1, 2])),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_executors_agree(name: str) -> None:
    runs = [
        pf.run(PROBLEM, METHODS[name], rounds=8, theta=3.0, repeats=2, dtype="float64", executor=executor)
        for executor in ("gather", "dense", "loop")
    ]
    for other in runs[1:]:
        np.testing.assert_allclose(other.theta, runs[0].theta, rtol=1e-10)
        np.testing.assert_allclose(other["time"], runs[0]["time"], rtol=1e-12)


def test_repeats_begin_with_clients_of_their_own() -> None:
    history = pf.run(PROBLEM, METHODS["plain"], rounds=5, theta=3.0, repeats=20)
    assert len(set(history["time"][:, 1])) == 20


@pytest.mark.slow
def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    whole = pf.run(PROBLEM, METHODS["lazy, late"], rounds=30, theta=3.0, repeats=2)
    pf.run(PROBLEM, METHODS["lazy, late"], rounds=13, theta=3.0, repeats=2, checkpoint=tmp_path / "run")
    again = pf.Checkpoint(tmp_path / "run", resume=True)
    rest = pf.run(PROBLEM, METHODS["lazy, late"], rounds=30, theta=3.0, repeats=2, checkpoint=again)
    np.testing.assert_array_equal(whole.theta, rest.theta)


@pytest.mark.slow
def test_a_sweep_is_its_runs() -> None:
    settings = [{"participation.staleness": power} for power in (0.0, 0.5, 1.0)]
    swept = pf.sweep(PROBLEM, METHODS["plain"], settings, rounds=20, theta=3.0)
    for setting, history in zip(settings, swept.histories, strict=True):
        part = pf.Asynchronous(2, 5, LATENCY, staleness=setting["participation.staleness"], limit=12)
        alone = pf.run(PROBLEM, pf.p_fedavg(0.1, local_steps=2, participation=part), rounds=20, theta=3.0)
        np.testing.assert_allclose(history.theta, alone.theta, rtol=1e-6)


def test_drift_is_met_when_work_starts() -> None:
    """Of a client that starts at time s the people are those of time s, however late it is heard."""
    path = pf.paths.Linear(1.0)
    problem = pf.Problem(pf.losses.squared, pf.populations.Drifting(pf.populations.Gaussian([0.0] * 3, 0.0, 0.0), path))
    algorithm = pf.p_fedavg(1.0, participation=pf.Asynchronous(1, limit=9), deploy="round")
    clock = pf.Clock(compute=[1.0, 1.2, 3.7])
    history = pf.run(problem, algorithm, rounds=3, theta=0.0, clock=clock, dtype="float64")
    # Moves at 1, 1.2, 2: by clients that started at 0, 0 and 1, on models 0, 0 and theta_1 = 0.
    np.testing.assert_allclose(history["time"][0], [0, 1, 1.2, 2])
    np.testing.assert_allclose(history.theta[0], [0, 0, 0, 1])
