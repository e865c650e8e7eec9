"""Executor `sharded`: over 8 devices, and over two processes, the same trajectory as on one device.

The number of devices is settled before JAX starts, so runs are made by processes of their own: this file, as a script.
"""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import performative as pf

DEVICES = 8
LOCAL = {"rate": 0.1, "local_steps": 2, "batch": pf.Fixed(3)}


def gaussian(clients):
    return pf.populations.Gaussian(np.arange(float(clients)), 0.5, 1.0)


def sluggish(clients):
    speed = np.random.default_rng(1).uniform(0.2, 0.9, clients)
    return pf.Problem(pf.losses.squared, pf.populations.Sluggish(gaussian(clients), speed))


def strategic(clients, rows=40):
    rng = np.random.default_rng(2)
    weights = rng.uniform(1.0, 2.0, clients)
    x, y = rng.standard_normal((clients, rows, 3)), rng.integers(0, 2, (clients, rows))
    population = pf.populations.Strategic(x, y, 0.5)
    return pf.Problem(pf.losses.logistic(0.1), population, weights=weights / weights.sum())


def reweighted(clients):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((clients, 8, 3)), rng.integers(0, 2, (clients, 8))
    population = pf.populations.Reweighted(x, y, 1.5, classes=2)
    return pf.Problem(pf.losses.cross_entropy(pf.losses.linear_scores), population)


def everyone():
    """11 clients on 8 devices, each with its own number of steps, and data that remember."""
    work = pf.LocalWork(pf.Full(), np.arange(11) % 3 + 1)
    algorithm = pf.p_fedavg(rate=0.1, batch=pf.Fixed(3), participation=work, aggregator=pf.aggregators.Median())
    return sluggish(11), algorithm, {}


def some():
    """5 draws with replacement from 16 clients, who look into tables and remember a control variate."""
    return strategic(16), pf.scaffold(**LOCAL, participation=pf.SchemeOne(5)), {"risk": False}


def two_of(participation):
    return {**LOCAL, "participation": participation}


def on_disk(folder, participation):
    rng = np.random.default_rng(4)
    np.save(folder / "x.npy", rng.standard_normal((19, 12, 3)))
    table = pf.tables.OnDisk(folder / "x.npy")
    problem = pf.Problem(pf.losses.logistic(0.1), pf.populations.Static(table, rng.integers(0, 2, (19, 12))))
    return problem, pf.p_fedavg(**LOCAL, participation=participation), {"theta": np.zeros(3)}


def network(participation, **options):
    rng = np.random.default_rng(5)
    theta, scores = pf.networks.cnn((8, 8), 3, channels=(4, 8), width=16)
    population = pf.populations.Static(rng.standard_normal((12, 9, 8, 8)), rng.integers(0, 3, (12, 9)))
    algorithm = pf.p_fedavg(**LOCAL, participation=participation)
    return pf.Problem(pf.losses.cross_entropy(scores), population), algorithm, {"theta": theta, **options}


FAST = {"everyone": everyone, "some": some}
SLOW = {
    "one client": lambda: (pf.Problem(pf.losses.squared, gaussian(1)), pf.p_fedavg(**LOCAL), {}),
    "audited subset": lambda: (pf.Problem(pf.losses.squared, gaussian(600)), pf.p_fedavg(**LOCAL), {}),
    "different rows": lambda: (
        strategic(16), pf.p_fedavg(**LOCAL | {"batch": pf.Uniform(3)}, participation=pf.SchemeTwo(8)), {}
    ),
    "epochs, in turn": lambda: (strategic(20), pf.p_fedavg(**LOCAL | {"batch": pf.Shuffled(3)}), {"at_once": 2}),
    "cohort in turn": lambda: (strategic(40), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(30)), {"at_once": 2}),
    "moving worlds": lambda: (
        sluggish(11), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(3), absent="moves", deploy="round"), {}
    ),
    "class weights": lambda: (reweighted(10), pf.p_fedavg(**LOCAL), {"theta": np.zeros((2, 3))}),
    "class weights of some": lambda: (
        reweighted(10), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(3)), {"theta": np.zeros((2, 3))}
    ),
    "server memory": lambda: (strategic(16), pf.fedvarp(**LOCAL, participation=pf.SchemeTwo(5)), {}),
    "server memory, uneven": lambda: (strategic(11), pf.fedvarp(**LOCAL, participation=pf.SchemeTwo(5)), {}),
    "chosen by loss": lambda: (strategic(11), pf.p_fedavg(**LOCAL, participation=pf.PowerOfChoice(3, 6)), {}),
    "windows": lambda: (pf.Problem(pf.losses.squared, gaussian(9)), pf.profl(**LOCAL, window=3), {}),
    "thinned": lambda: (
        strategic(11), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(3)),
        {"rounds": 7, "every": 3, "record_theta": "last"},
    ),
    "diverging": lambda: (
        pf.Problem(pf.losses.squared, gaussian(11)), pf.p_fedavg(rate=5.0), {"rounds": 40, "limit": 1e3}
    ),
    "box": lambda: (pf.Problem(pf.losses.squared, gaussian(11), domain=pf.Box(-1.0, 1.0)), pf.p_fedavg(**LOCAL), {}),
    "convolutions": lambda: network(pf.Full()),
    "convolutions of some": lambda: network(pf.SchemeTwo(5), at_once=1),
}  # fmt: skip


def options_of(more):
    return {"rounds": 6, "repeats": 2, "dtype": "float64", "risk": 2, **more}


def gap(first, second):
    """The largest difference of anything recorded, relative to 1 + its size; infinite where columns differ."""
    a, b = first.to_xarray(), second.to_xarray()
    if set(a) != set(b):
        return float("inf")
    apart = [np.abs(a[n].values - b[n].values) / (1 + np.abs(a[n].values)) for n in a]
    return max(float(np.max(gaps, initial=0.0)) for gaps in apart)


def same(first, second):
    a, b = first.to_xarray(), second.to_xarray()
    return set(a) == set(b) and all(np.array_equal(a[n], b[n], equal_nan=True) for n in a)


class Spy:
    """Stands in for `run_chunk`: the same program, and where its arrays lie and what travels in it."""

    def __init__(self):
        import importlib

        self.drive = importlib.import_module("performative.engine.drive")
        self.real, self.programs, self.facts = self.drive.run_chunk, {}, {}
        self.drive.run_chunk = self

    def __call__(self, frozen, state, watch, capacity):
        if watch.executor != "sharded":
            return self.real(frozen, state, watch, capacity)
        if capacity not in self.programs:
            self.programs[capacity] = self.real.lower(frozen, state, watch, capacity).compile()
        text = self.programs[capacity].compiled.as_text()
        state, rows = self.programs[capacity](frozen, state, watch, capacity)
        self.facts = {
            "data": rows_on_devices(frozen[0].setup.problem.population, 0),
            "memory": rows_on_devices(state.clients, 1),
            "model": rows_on_devices(state.theta, 0),
            "travels": largest_collective(text),
        }
        return state, rows


def rows_on_devices(tree, axis):
    """For each array of a tree: its length along an axis, and that of the piece that each device holds."""
    import jax

    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array) and leaf.ndim > axis]
    return [[leaf.shape[axis], *(shard.data.shape[axis] for shard in leaf.addressable_shards)] for leaf in leaves]


def largest_collective(text):
    """Numbers in the largest result of an operation between devices."""
    found = re.findall(r"= (.*?) (?:all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\(", text)
    shapes = [shape for result in found for shape in re.findall(r"\w+\[([\d,]*)\]", result)]
    return max((int(np.prod([int(n) for n in shape.split(",") if n])) for shape in shapes), default=0)


def run_broken(folder, problem, algorithm, options):
    """Killed after its second checkpoint, then taken up again."""
    from performative.engine import processes

    real = processes.Checkpoint.save

    def save(books, state, chunks, notes):
        real(books, state, chunks, notes)
        if notes["done"] == 4:
            raise KeyboardInterrupt

    processes.Checkpoint.save = save
    try:
        pf.run(problem, algorithm, **options, checkpoint=folder)
        raise RuntimeError("it was not killed")
    except KeyboardInterrupt:
        pass
    processes.Checkpoint.save = real
    return pf.run(problem, algorithm, **options, checkpoint=folder, resume=True)


def eight_devices(folder, names):
    """One process with 8 devices: each case as it is, and sharded."""
    told, spy = {}, Spy()
    for name in names:
        problem, algorithm, more = (FAST | SLOW)[name]()
        options, spy.programs = options_of(more), {}
        plain = pf.run(problem, algorithm, **options)
        options["executor"] = "sharded"
        sharded = pf.run(problem, algorithm, **options, checkpoint=folder / name, checkpoint_every=2)
        told[name] = {"gap": gap(plain, sharded), "meta": sharded.meta, **spy.facts}
        if name == "some":
            options["checkpoint_every"] = 2
            told[name]["resumed"] = same(sharded, run_broken(folder / "broken", problem, algorithm, options))
        plain.save(folder / f"{name}.nc")
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    place = Path(sys.argv[2])
    {"eight": eight_devices}[sys.argv[1]](place, sys.argv[3:])
