"""Recipes that `pf.moments` covers, put together at random."""

import numpy as np

import performative as pf

CLIENTS = 6


def draw_recipe(seed):
    """A problem and an algorithm."""
    rng = np.random.default_rng(seed)

    def pick(*options):
        return options[rng.integers(len(options))]()

    problem = pf.Problem(*_people(rng, pick), weights=pick(lambda: None, lambda: rng.dirichlet(np.full(CLIENTS, 3.0))))
    work = pick(
        lambda: None, lambda: None, lambda: rng.integers(1, 4, CLIENTS).tolist(),
        lambda: pf.participation.UniformSteps(1, 3),
    )  # fmt: skip
    inner = pick(
        pf.Full, lambda: pf.SchemeOne(2), lambda: pf.SchemeTwo(3), lambda: pf.Cyclic(2), lambda: pf.Available(0.6),
        # Waits of random length are refused where people change with time.
        lambda: pf.SchemeTwo(2) if problem.population.reads_time else pf.FirstK(2, pf.participation.Exponential(1.0)),
    )  # fmt: skip
    parts = {
        "batch": pf.Fixed(int(rng.integers(1, 4))),
        "deploy": pick(lambda: "step", lambda: "round", lambda: "never", lambda: pf.Every(2), lambda: pf.Late(1)),
        "channel": pick(
            pf.channels.Plain, pf.channels.Plain, lambda: pf.channels.ClippedNoise(1e4, 1e-4),
            lambda: pf.channels.RandomK(1),
        ),
    }  # fmt: skip
    if work is None:
        parts |= {"local_steps": int(rng.integers(1, 4)), "participation": inner}
    else:
        parts |= {"participation": pf.LocalWork(inner, work)}
    rate = pick(lambda: 0.05, lambda: 0.15, lambda: pf.schedules.harmonic(2.0, 15.0))
    # Who differentiates the reaction needs data that do not change by themselves.
    return problem, _method(rng, pick, foresight=not problem.population.reads_time)(rate, **parts)


def _people(rng, pick):
    mean, eps = rng.normal(size=CLIENTS), rng.uniform(-0.4, 0.6, CLIENTS)

    def gaussian():
        return pf.losses.squared, pf.populations.Gaussian(mean, eps, rng.uniform(0.5, 1.5, CLIENTS))

    def vector():
        level, slope = rng.normal(size=(CLIENTS, 2)), rng.normal(size=(CLIENTS, 2, 2)) * 0.2
        return pf.losses.squared, pf.populations.Gaussian(level, slope, 1.0)

    def pricing():
        return pf.losses.negative_revenue, pf.populations.Pricing(mean + 3, rng.uniform(0.5, 1.5, CLIENTS), 0.5)

    def regression():
        return pf.losses.ridge(0.1), pf.populations.Regression(mean / 2, 0.5, mean + 1, eps, 0.5)

    def sluggish():
        loss, inner = gaussian()
        return loss, pf.populations.Sluggish(inner, 0.4)

    def drifting():
        loss, inner = gaussian()
        return loss, pf.populations.Drifting(inner, pf.paths.Linear(0.05))

    return pick(gaussian, gaussian, vector, pricing, regression, sluggish, drifting)


def _method(rng, pick, foresight):
    momentum = pf.optimizers.Momentum(0.5)

    def local_momentum(rate, **parts):
        estimator = pf.estimators.Preconditioned(pf.estimators.Minibatch(), momentum, reset=bool(rng.integers(2)))
        return pf.p_fedavg(rate, estimator=estimator, **parts)

    def foresees(rate, **parts):
        return pf.p_fedavg(rate, estimator=pf.estimators.Performative(None, term="pathwise"), **parts)

    def server(rate, **parts):
        return pf.p_fedavg(rate, aggregator=pf.aggregators.ServerOpt(pf.aggregators.Mean(), momentum, 0.8), **parts)

    def clusters(rate, **parts):
        return pf.cluster_fedvarp(rate, clusters=[0, 0, 0, 1, 1, 1], **parts)

    def prox(rate, **parts):
        return pf.fedprox(rate, mu=0.5, **parts)

    def cohort_nova(rate, **parts):
        return pf.p_fedavg(rate, aggregator=pf.aggregators.Nova(over="cohort"), **parts)

    def ditto(rate, **parts):
        return pf.p_fedavg(rate, sharing=pf.sharing.Ditto(0.5), **(parts | {"deploy": "round"}))

    return pick(
        lambda: pf.p_fedavg, lambda: pf.scaffold, lambda: pf.fedvarp, lambda: clusters, lambda: prox,
        lambda: local_momentum, lambda: foresees if foresight else prox, lambda: server, lambda: cohort_nova,
        lambda: ditto,
    )  # fmt: skip
