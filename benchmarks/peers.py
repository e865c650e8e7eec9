"""Retraining with performativeGYM's optimizer compared with ours, in one environment, if that package is installed."""

import importlib.util

import jax.numpy as jnp
import numpy as np

import performative as pf
from benchmarks.core import LEAN, alternate

ENV, RATE = "gaussian-contracting-v1", 0.5


def _squared(params, x, y):
    """The loss of rows [n, 1], as in performativeGYM: one per row."""
    return 0.5 * jnp.sum((params - x) ** 2, axis=1)


def _theirs(env, optimizer):
    """Their step on the rows of our black box, until the deployments are used up."""
    params, rows = jnp.atleast_1d(jnp.asarray(env.start)), env.reset(0)
    for _ in range(env.budget.deployments):
        params = optimizer(params).step(params, x=jnp.asarray(rows["z"]).T, y=None)
        rows = env.deploy(np.asarray(params)[0])
    return params


def peers() -> dict:
    """Gradient descent, one step per deployment: same environment, same number of rows and deployments."""
    name = f"gym: {ENV}, one gradient step a deployment"
    if importlib.util.find_spec("performative_gym") is None:
        return {"benchmark": name, "note": "gym: not measured: performativeGYM (performative_gym) is not installed"}
    from performative_gym import RGD

    env = pf.suite.make(ENV)
    rounds, batch = env.budget.deployments, pf.Fixed(env.rows)

    def ours():
        algorithm = pf.p_fedavg(RATE, batch=batch, deploy="round")
        return pf.run(env.problem, algorithm, rounds, env.start, **LEAN).final

    def theirs():
        return _theirs(env, lambda params: RGD(params, lr=RATE, loss_fn=_squared))

    best = alternate({"ours": ours, "same": theirs}, 3)
    ends = float(np.ravel(ours())[0]), float(np.ravel(theirs())[0])
    return {
        "benchmark": name,
        "ours_s": best["ours"],
        "reference_s": best["same"],
        "ratio": best["ours"] / best["same"],
        "note": f"gym: ours ends at {ends[0]:.3f}, theirs at {ends[1]:.3f}, the stable point is "
        f"{float(env.stable.theta):.3f}; ours is a whole pf.run, theirs a loop over our black box",
    }


BENCHMARKS = {"gym": peers}
