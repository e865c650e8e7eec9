"""Runs over 8 devices, or over two processes: this file as a script, since JAX settles on its devices when it starts.

What a run showed is written as JSON, for `test_sharded` to read.
"""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
from sharded_cases import FAST, SLOW, everyone, gap, on_disk, options_of, same, small, some

import performative as pf
from performative._base.messages import hearing
from performative.tables.stored import RowFile

DEVICES = 8


class Spy:
    """Stands in for `run_chunk`: the same program, and where its arrays lie and what travels in it."""

    def __init__(self):
        import importlib

        self.drive = importlib.import_module("performative._engine.drive")
        self.real, self.text, self.facts = self.drive.run_chunk, "", {}
        self.drive.run_chunk = self

    def __call__(self, fixed, span, state, watch, capacity):
        if watch.executor.name != "sharded":
            return self.real(fixed, span, state, watch, capacity)
        if self.text is None:  # it is compiled once more to be read
            self.text = self.real.lower(fixed, span, state, watch, capacity).compile().as_text()
        state, rows = self.real(fixed, span, state, watch, capacity)
        self.facts = {
            "data": rows_on_devices(fixed.setup.problem.population, 0),
            "memory": rows_on_devices(state.clients, 1),
            "model": rows_on_devices(state.theta, 0),
            "travels": largest_collective(self.text),
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
    """Killed after its first checkpoint, then taken up again."""
    from performative._engine import processes

    real = processes.RunFolder.save

    def save(books, state, chunks, notes):
        real(books, state, chunks, notes)
        raise KeyboardInterrupt

    processes.RunFolder.save = save
    try:
        pf.run(problem, algorithm, **options, checkpoint=pf.Checkpoint(folder, every=options["rounds"] // 2))
        raise RuntimeError("it was not killed")
    except KeyboardInterrupt:
        pass
    processes.RunFolder.save = real
    return pf.run(
        problem, algorithm, **options, checkpoint=pf.Checkpoint(folder, every=options["rounds"] // 2, resume=True)
    )


def eight_devices(folder, names):
    """One process with 8 devices: each case as it is, and sharded."""
    told, spy = {}, Spy()
    for name in names:
        problem, algorithm, more = (FAST | SLOW)[name]()
        options, spy.text = options_of(more), None if name == "some" else ""
        with hearing("run-diverged") as alone:
            plain = pf.run(problem, algorithm, **options)
        options |= {"executor": "sharded"}
        kept = pf.Checkpoint(folder / name, every=options["rounds"] // 2)
        with hearing("run-diverged") as together:
            sharded = pf.run(problem, algorithm, **options, checkpoint=kept)
        told[name] = {"gap": gap(plain, sharded), "executor": sharded.meta["executor"], **spy.facts}
        told[name]["diverged"] = [bool(alone), bool(together)]
        if name == "some":
            told[name]["resumed"] = same(sharded, run_broken(folder / "broken", problem, algorithm, options))
    (folder / "told.json").write_text(json.dumps(told))


def two_processes(folder, number, port, *names):
    """One of two processes, with half of the devices each."""
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(number))
    if names == ("small",):
        problem, algorithm, more = small()
        pf.run(problem, algorithm, **options_of(more), executor="sharded").save(folder / f"process{number}.nc")
        return
    told = {"gaps": {}}
    cases = {
        "everyone": everyone(),
        "some": some(),
        "disk": on_disk(folder / number, pf.Full()),
        "disk, some": on_disk(folder / number, pf.SchemeTwo(5)),
    }
    for name, (problem, algorithm, more) in cases.items():
        options = options_of(more)
        plain, read = pf.run(problem, algorithm, **options), []
        real = RowFile.read
        RowFile.read = lambda *args, real=real, read=read: read.append(np.unique(args[1])) or real(*args)
        told["gaps"][name] = gap(plain, pf.run(problem, algorithm, **options, executor="sharded"))
        RowFile.read = real
        told[f"read, {name}"] = np.unique(np.concatenate([[], *read])).tolist()
    problem, algorithm, more = some()
    options = options_of(more) | {"executor": "sharded"}

    def kept(name):
        return pf.Checkpoint(folder / name, every=3, resume=True)

    whole = pf.run(problem, algorithm, **options, checkpoint=kept("whole"))
    pf.run(problem, algorithm, **options | {"rounds": 3}, checkpoint=kept("broken"))
    told["resumed"] = same(whole, pf.run(problem, algorithm, **options, checkpoint=kept("broken")))
    for name, wrong in {
        "seed": {"seed": int(number)},
        "folder": {"checkpoint": kept(f"{number}/own")},
        "privacy": {"privacy": pf.Privacy(1e-5)},
    }.items():
        if name == "folder" and number == "1":  # one process finds records where the other finds none
            wrong = {}
        try:
            pf.run(problem, algorithm, **options | {"checkpoint": kept("whole")} | wrong)
        except ValueError as error:
            told[name] = str(error)
    (folder / f"told{number}.json").write_text(json.dumps(told))


# A script that makes the checks of `conftest.py` first: types, promotion of dtypes. They take a while to set up.
STRICT = """
import runpy, sys
sys.path[:0] = [sys.argv[1], sys.argv.pop(1) + "/engine"]
import conftest
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def start(devices, *words, strict=False):
    """This file as a process with so many devices."""
    before = ["-c", STRICT, str(Path(__file__).parents[1])] if strict else []
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    plain = {"JAX_NUMPY_DTYPE_PROMOTION": "strict", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, "-W", "error", *before, __file__, *map(str, words)]
    return subprocess.Popen(command, env={**os.environ, **plain, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags})


def wait(*processes, seconds=600):
    """All of them must end well; none is left behind."""
    try:
        codes = [process.wait(seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert codes == [0] * len(processes)


def start_two(folder, *names, strict=False):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for number in "01":
        (folder / number).mkdir()
    return [start(DEVICES // 2, "two", folder, number, port, *names, strict=strict) for number in "01"]


if __name__ == "__main__":
    made = {"eight": eight_devices, "two": two_processes}[sys.argv[1]]
    made(Path(sys.argv[2]), *([sys.argv[3:]] if made is eight_devices else sys.argv[3:]))
