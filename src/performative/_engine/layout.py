"""Choose how a run is laid out: how many clients at once, and how convolutions are done."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from performative._base.client_axis import take_clients
from performative._engine.client import client_round
from performative._engine.compute import Compute, side_by_side
from performative._engine.keys import run_keys
from performative._engine.memory import bytes_of, peak_bytes
from performative._engine.products import has_convolutions
from performative._engine.round import open_round
from performative._engine.setup import Setup, init_state
from performative.types import Scene, Theta

# Below this many numbers in the model and samples in a round, tracing costs more than a layout could save.
_SMALL_MODEL = 1 << 12
_FEW_SAMPLES = 1 << 26
# The estimate was between 0.9 and 1.9 times what XLA reports, for networks on a CPU.
_MARGIN = 1.5


class Footprint(eqx.Module):
    """Memory that a run needs on its device, in bytes.

    Args:
        client: one client's round
        update: one client's update; all of them are in memory when the server aggregates
        standing: data, the model and all state, for the whole run
        available: what the device has left
    """

    client: int = eqx.field(static=True)
    update: int = eqx.field(static=True)
    standing: int = eqx.field(static=True)
    available: int = eqx.field(static=True)
    cohort: int = eqx.field(static=True)
    copies: int = eqx.field(static=True)

    @property
    def at_once(self) -> int | None:
        """How many clients fit in parallel; None if all do, for all repeats and settings."""
        left = self.available - self.standing
        everything = self.copies * self.cohort * (_MARGIN * self.client + 2 * self.update)
        if everything <= left:
            return None
        fits = int((left - 2 * self.cohort * self.update) // max(1, _MARGIN * self.client))
        blocks = -(-self.cohort // max(1, fits))
        return max(1, -(-self.cohort // blocks))

    @property
    def whole(self) -> int:
        """All clients of all repeats and settings at once."""
        return self.standing + self.copies * self.cohort * (self.client + 2 * self.update)

    @property
    def missing(self) -> int:
        """Bytes missing even for one client at a time; 0 if it fits."""
        least = self.standing + 2 * self.cohort * self.update + self.client
        return max(0, int(least - self.available))

    def __str__(self) -> str:
        needs = (
            f"about {_gib(self.whole)}: {self.cohort} clients per round of {_gib(self.client)} each"
            + (f", {self.copies} repeats" if self.copies > 1 else "")
            + f", {_gib(self.standing)} of data and memory; {_gib(self.available)} are free, "
        )
        if self.standing > self.available:
            return needs + (
                "less than data and memory alone: keep tables on disk (pf.tables.OnDisk), as bytes (pf.tables.Packed),"
                ' run fewer repeats, or distribute clients over devices (executor="sharded")'
            )
        if self.missing:
            return needs + "too little for a single client: use smaller batches or models, or fewer clients per round"
        return needs + f"enough for {side_by_side(self.at_once)}"


def choose_compute(
    setup: Setup, start: Theta, copies: int, at_once: int | None = None, half: bool = False
) -> tuple[Compute, Footprint | None]:
    """The layout of a run, and the footprint it is based on; None if none had to be measured.

    On a CPU the convolutions of networks become matrix products, one client at a time: a product uses all cores by
    itself. On a GPU as many clients as fit compute in parallel.
    """
    algorithm = setup.algorithm
    size = sum(leaf.size for leaf in jax.tree.leaves(start))
    cohort = algorithm.participation.size(setup.weights.shape[-1])
    samples = copies * cohort * algorithm.steps * algorithm.batch.largest(setup.problem.population)
    if size < _SMALL_MODEL and samples < _FEW_SAMPLES:
        return Compute(at_once=_fewer(at_once, cohort), half=half), None
    setup = set_compute(setup, start, half)
    footprint = measure_footprint(setup, start, copies)
    if at_once is None:
        at_once = footprint.at_once
        if jax.default_backend() == "cpu" and setup.compute.products:
            at_once = 1
    return Compute(_fewer(at_once, cohort), setup.compute.products, half), footprint


def set_compute(setup: Setup, start: Theta, half: bool) -> Setup:
    """The setup with all clients at once, and convolutions (if any) as products."""
    return dataclasses.replace(setup, compute=Compute(products=_convolves(setup, start), half=half))


def measure_footprint(setup: Setup, start: Theta, copies: int) -> Footprint:
    """Estimate the footprint by tracing one client's round."""
    state = jax.eval_shape(lambda: init_state(setup, start, False))
    keys = jax.eval_shape(lambda: run_keys(jax.random.key(0)))
    _, broadcast, _ = eqx.filter_eval_shape(open_round, setup, state, keys)
    arrays, rest = eqx.partition(setup.problem.population, eqx.is_array)

    def one(arrays: PyTree, memory: PyTree, keys: PyTree, broadcast: PyTree) -> PyTree:
        client = jnp.zeros((), jnp.int32)
        population = take_clients(eqx.combine(arrays, rest), client)[0]
        mine = jax.tree.map(lambda leaf: leaf[0], memory)
        mine_keys = keys.of_client(broadcast.round, client)
        return client_round(
            setup.problem, setup.algorithm, population, broadcast, mine, mine_keys, client=client, compute=setup.compute
        )

    traced = jax.make_jaxpr(one)(arrays, state.clients, keys, broadcast)
    cohort = setup.algorithm.participation.size(setup.weights.shape[-1])
    standing = bytes_of(arrays) + 2 * copies * bytes_of(state)
    return Footprint(peak_bytes(traced.jaxpr), bytes_of(start), standing, free_bytes(), cohort, copies)


def free_bytes() -> int:
    """Free memory of the default device, or of the machine if the device has none of its own."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats["bytes_in_use"])
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _fewer(at_once: int | None, cohort: int) -> int | None:
    return None if at_once is None or at_once >= cohort else at_once


def _convolves(setup: Setup, start: Theta) -> bool:
    """Whether the loss of a sample has convolutions."""
    arrays, rest = eqx.partition(setup.problem.population, eqx.is_array)

    def one(arrays: PyTree, theta: Theta) -> Any:
        population = take_clients(eqx.combine(arrays, rest), jnp.zeros((), jnp.int32))[0]
        world = population.init(Scene(theta, setup.problem.loss))
        noise = jax.tree.map(lambda leaf: leaf[0], population.draw(jax.random.key(0), (1,), theta))
        return setup.problem.loss(theta, population.sample(noise, world, theta))

    return has_convolutions(one, arrays, start)


def _gib(size: int | float) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= scale / 4:
            return f"{size / scale:.3g} {unit}"
    return f"{size / 2**10:.3g} KiB"
