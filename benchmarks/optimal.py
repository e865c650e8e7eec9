"""The cost of the performative gradient relative to the plain one. Ratios within one run; nothing is asserted."""

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from benchmarks.core import LAST, QUIET, alternate
from performative._engine.prepare import on_device
from performative.populations.base import collect
from performative.testing.uses import slice_client

CLIENTS, GOODS, WINDOW, SAMPLES, ROUNDS = 100, 10, 50, 500, 20


def _seconds(name: str, algorithm: pf.Algorithm, problem: pf.Problem, best: dict[str, float]):
    def run():
        history = pf.run(problem, algorithm, ROUNDS, record=LAST, **QUIET)
        best[name] = min(best.get(name, float("inf")), history.meta["seconds"])
        return history.theta

    return run


def optimal_round() -> dict:
    """A round of PROFL compared with one of P-FedAvg, d=10, H=50, n=500, N=100, E=1."""
    problem = pf.cases.pricing_demands(CLIENTS, GOODS)
    common = {"rate": 0.01, "batch": pf.Fixed(SAMPLES)}
    inner = pf.estimators.Performative(WINDOW)
    algorithms = {
        "p_fedavg": pf.p_fedavg(**common),
        "pofl": pf.pofl(window=WINDOW, **common),
        "profl": pf.profl(window=WINDOW, **common),
        "printed": pf.p_fedavg(estimator=pf.estimators.Filtered(inner, rule="printed"), **common),
    }
    inside: dict[str, float] = {}
    alternate({name: _seconds(name, how, problem, inside) for name, how in algorithms.items()}, 5)
    return {
        "benchmark": "optimal: a round of PROFL and of P-FedAvg, d=10 H=50 n=500 N=100",
        **{f"{name}_ms": 1e3 * seconds / ROUNDS for name, seconds in inside.items()},
        **{f"{name}_ratio": inside[name] / inside["p_fedavg"] for name in algorithms if name != "p_fedavg"},
        "note": "compiled loop; ratios are relative to P-FedAvg with batches of the same size",
    }


def _variances(problem: pf.Problem, theta: float | np.ndarray, reaction: np.ndarray) -> dict[str, float]:
    """Variance of one sample's performative gradient at the true df/dtheta, by form, for client 0."""
    on, theta = on_device(problem, jnp.float32), jnp.asarray(theta, jnp.float32)
    mine = slice_client(on.population, 0)
    family = mine.family
    noise = mine.draw(jax.random.key(0), (200_000,), theta)
    batch = collect(mine, noise, None, mine.init(theta, on.loss), theta)
    each, first = jax.vmap(jax.value_and_grad(on.loss), in_axes=(None, 0))(theta, batch.z)
    slope = jax.vmap(jax.grad(on.loss, argnums=1, allow_int=True), in_axes=(None, 0))(theta, batch.z)
    score = family.score(batch, family.fit(batch))
    forms = {
        "score": each[:, None] * score,
        "baseline": (each - jnp.mean(each))[:, None] * score,
        "pathwise": family.displace(batch, slope),
    }
    both = {name: first.reshape(len(first), -1) + form @ reaction for name, form in forms.items()}
    return {name: float(jnp.sum(jnp.var(rows, axis=0))) for name, rows in both.items()}


def optimal_variance() -> dict:
    """Variance of the score form, with and without baseline, relative to the pathwise form."""
    goods = 5
    prices = pf.cases.pricing_demands(goods=goods)
    gamma = float(np.asarray(prices.population.sensitivity)[0, 0])
    houses = pf.cases.house_pricing()
    cases = {
        "pricing": _variances(prices, pf.optimal_point(prices), -gamma * np.eye(goods, dtype=np.float32)),
        "houses": _variances(houses, pf.optimal_point(houses), np.full((1, 1), 5 / 3, np.float32)),
    }
    return {
        "benchmark": "variance: the score form of the performative gradient over the pathwise one",
        **{
            f"{case}_{form}_ratio": found[form] / found["pathwise"]
            for case, found in cases.items()
            for form in ("score", "baseline")
        },
        "note": "one sample, true df/dtheta, at the optimal point, client 0",
    }


BENCHMARKS = {"optimal": optimal_round, "variance": optimal_variance}
