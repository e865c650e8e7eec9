"""The cost of clipping and noise relative to the plain gradient. Ratios within one run; nothing is asserted."""

import jax
import numpy as np

import performative as pf
from benchmarks.core import LAST, QUIET, alternate

ROWS, WIDTH, BATCH, ROUNDS = 512, 10_000, 64, 60


def _problem() -> pf.Problem:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, ROWS, WIDTH), np.float32) / np.sqrt(WIDTH)
    y = (x.sum(-1) > 0).astype(np.float32)
    return pf.Problem(pf.losses.logistic(0.01), pf.populations.Strategic(x, y, strength=0.0))


def private_step() -> dict:
    """A step of `Clipped` and of `Dice` compared with one of `Minibatch`, d=1e4, batch 64."""
    problem, best = _problem(), {}
    common = {"rate": 0.1, "batch": pf.Fixed(BATCH)}
    algorithms = {
        "plain": pf.p_fedavg(**common),
        "clipped": pf.pcsgd(clip=1.0, noise_multiplier=1.0, **common),
        "blocks": pf.p_fedavg(estimator=pf.estimators.Clipped(1.0, 1.0, block=16), **common),
        "dice": pf.dicesgd(clip=1.0, memory_clip=1.0, noise_multiplier=1.0, **common),
    }

    def timed(name: str):
        def run():
            history = pf.run(problem, algorithms[name], ROUNDS, record=LAST, **QUIET)
            best[name] = min(best.get(name, float("inf")), history.meta["seconds"])
            return jax.tree.leaves(history.theta)[0]

        return run

    alternate({name: timed(name) for name in algorithms}, 5)
    return {
        "benchmark": f"private: a step of clipped and noisy gradients and of plain ones, d={WIDTH} batch {BATCH}",
        **{f"{name}_ms": 1e3 * seconds / ROUNDS for name, seconds in best.items()},
        **{f"{name}_ratio": best[name] / best["plain"] for name in algorithms if name != "plain"},
        "note": "ratios are relative to Minibatch; blocks computes 16 samples' gradients at once",
    }


BENCHMARKS = {"private": private_step}
