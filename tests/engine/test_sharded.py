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
from performative._base.messages import hearing

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
    """11 clients on 8 devices, whose data remember."""
    return sluggish(11), pf.p_fedavg(rate=0.1, batch=pf.Fixed(3), aggregator=pf.aggregators.Median()), {}


def some():
    """5 draws with replacement from 16 clients, who look into tables and remember a control variate."""
    algorithm = pf.scaffold(**LOCAL, participation=pf.SchemeOne(5))
    return strategic(16), algorithm, {"record": pf.Record(risks=False, consensus=False)}


def small():
    """As little to compile as there can be."""
    more = {"rounds": 3, "record": pf.Record(risks=False, consensus=False)}
    return pf.Problem(pf.losses.squared, gaussian(11)), pf.p_fedavg(rate=0.1), more


def on_disk(folder, participation):
    rng = np.random.default_rng(4)
    file = folder / f"{type(participation).__name__}.npy"
    np.save(file, rng.standard_normal((19, 12, 3)))
    table = pf.tables.OnDisk(file)
    problem = pf.Problem(pf.losses.logistic(0.1), pf.populations.Static(table, rng.integers(0, 2, (19, 12))))
    return problem, pf.p_fedavg(**LOCAL, participation=participation), {"theta": np.zeros(3)}


def network(participation, **options):
    rng = np.random.default_rng(5)
    theta, scores = pf.networks.cnn((8, 8), 3, channels=(4, 8), width=16)
    population = pf.populations.Static(rng.standard_normal((12, 9, 8, 8)), rng.integers(0, 3, (12, 9)))
    algorithm = pf.p_fedavg(**LOCAL, participation=participation)
    return pf.Problem(pf.losses.cross_entropy(scores), population), algorithm, {"theta": theta, **options}


IN_TURN = {"clients_at_once": 2}
FAST = {"everyone": everyone, "some": some}
SLOW = {
    "one client": lambda: (pf.Problem(pf.losses.squared, gaussian(1)), pf.p_fedavg(**LOCAL), {}),
    "audited subset": lambda: (pf.Problem(pf.losses.squared, gaussian(600)), pf.p_fedavg(**LOCAL), {}),
    "different rows": lambda: (
        strategic(16), pf.p_fedavg(**LOCAL | {"batch": pf.Uniform(3)}, participation=pf.SchemeTwo(8)), {}
    ),
    "epochs, in turn": lambda: (strategic(20), pf.p_fedavg(**LOCAL | {"batch": pf.Shuffled(3)}), IN_TURN),
    "cohort in turn": lambda: (strategic(40), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(30)), IN_TURN),
    "different steps": lambda: (
        strategic(11),
        pf.p_fedavg(rate=0.1, batch=pf.Fixed(3), participation=pf.LocalWork(pf.Full(), np.arange(11) % 3 + 1)), {},
    ),
    "different steps of some": lambda: (
        strategic(11),
        pf.p_fedavg(rate=0.1, batch=pf.Fixed(3), participation=pf.LocalWork(pf.SchemeOne(4), np.arange(11) % 3 + 1)),
        {},
    ),
    "moving worlds": lambda: (
        sluggish(11), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(3), absent="reacts", deploy="round"), {}
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
        {"rounds": 7, "record": pf.Record(risks=2, every=3, theta="last")},
    ),
    "diverging": lambda: (
        pf.Problem(pf.losses.squared, gaussian(11)), pf.p_fedavg(rate=5.0),
        {"rounds": 40, "record": pf.Record(risks=2, limit=1e3)},
    ),
    "box": lambda: (pf.Problem(pf.losses.squared, gaussian(11), domain=pf.Box(-1.0, 1.0)), pf.p_fedavg(**LOCAL), {}),
    "convolutions": lambda: network(pf.Full()),
    "convolutions of some": lambda: network(pf.SchemeTwo(5), clients_at_once=1),
}  # fmt: skip


def options_of(more):
    return {"rounds": 6, "repeats": 2, "dtype": "float64", "record": pf.Record(risks=2), **more}


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
        real = pf.tables.RowFile.read
        pf.tables.RowFile.read = lambda *args, real=real, read=read: read.append(np.unique(args[1])) or real(*args)
        told["gaps"][name] = gap(plain, pf.run(problem, algorithm, **options, executor="sharded"))
        pf.tables.RowFile.read = real
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
sys.path.insert(0, sys.argv.pop(1))
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


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eight")
    wait(start(DEVICES, "eight", folder, *FAST))
    return json.loads((folder / "told.json").read_text())


@pytest.mark.parametrize("name", FAST)
def test_eight_devices_give_the_same_trajectory(eight, name):
    told = eight[name]
    assert told["gap"] < 1e-12
    assert told["executor"] == "sharded over 8 devices"


@pytest.mark.parametrize("name", FAST)
def test_data_and_memory_are_dealt_out_and_the_model_is_not(eight, name):
    told = eight[name]
    # 16 clients, and 11 filled up to 16: two on each device.
    assert told["data"] and told["memory"]
    assert all(rows == [16] + [2] * DEVICES for rows in told["data"] + told["memory"])
    assert told["model"] == [[2] * (DEVICES + 1)]  # both repeats


def test_only_samples_travel_not_tables(eight):
    told = eight["some"]
    table, samples = 16 * 40 * 3, 2 * 8 * 3 * 3  # clients, rows, features; repeats, cohort, batch, features
    assert samples <= told["travels"] < table / 10


def test_a_killed_run_goes_on_to_the_same_bits(eight):
    assert eight["some"]["resumed"]


@pytest.fixture(scope="module")
def plain():
    problem, algorithm, more = small()
    return pf.run(problem, algorithm, **options_of(more))


def test_two_processes_give_the_same_trajectory(plain, tmp_path):
    wait(*start_two(tmp_path, "small"))
    first, second = (pf.History.load(tmp_path / f"process{number}.nc") for number in "01")
    assert gap(plain, first) < 1e-12
    assert same(first, second)
    assert first.meta["executor"] == "sharded over 8 devices of 2 processes"


def test_one_device_is_a_mesh_of_one(plain):
    problem, algorithm, more = small()
    sharded = pf.run(problem, algorithm, **options_of(more), executor="sharded")
    assert gap(plain, sharded) < 1e-12
    assert sharded.meta["executor"] == "sharded over 1 device"


def test_what_cannot_be_sharded_is_refused():
    problem = pf.Problem(pf.losses.squared, gaussian(3))
    with pytest.raises(ValueError, match=r'use pf\.run\(\.\.\., executor="sharded"\) on one of them'):
        pf.sweep(problem, pf.p_fedavg(rate=0.1), {"rate": [0.1, 0.2]}, rounds=2, executor="sharded")
    with pytest.raises(ValueError, match=r'"gather", "sharded", "loop".*got \'shard\''):
        pf.run(problem, pf.p_fedavg(rate=0.1), rounds=2, executor="shard")


def test_records_do_not_keep_the_buffer_of_their_chunk():
    import jax

    from performative._engine.assemble import flatten_rows
    from performative._engine.chunk import RecordBuffer

    none = {"totals": {}, "clients": {}, "cohorts": {}}
    one = none | {"levels": {"a": np.zeros(2)}, "theta": np.zeros((2, 3)), "sound": np.ones(2)}
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, np.float32), one)
    chunk = flatten_rows(RecordBuffer(shapes, 1, 64).read(5))
    assert chunk["theta/0"].shape == (2, 5, 3) and chunk["levels/a"].shape == (2, 5)
    assert all(array.base is None for array in chunk.values())


@pytest.mark.slow
def test_parts_of_every_kind_give_the_same_trajectory(tmp_path):
    wait(start(DEVICES, "eight", tmp_path, *SLOW, strict=True), seconds=1800)
    told = json.loads((tmp_path / "told.json").read_text())
    assert set(told) == set(SLOW)
    assert {name: case["gap"] for name, case in told.items() if not case["gap"] < 1e-12} == {}
    assert {name: case["diverged"] for name, case in told.items() if any(case["diverged"])} == {"diverging": [True] * 2}


@pytest.mark.slow
def test_two_processes_share_checkpoints_and_refuse_what_differs(tmp_path):
    wait(*start_two(tmp_path, strict=True), seconds=1800)
    for number in "01":
        told = json.loads((tmp_path / f"told{number}.json").read_text())
        assert set(told["gaps"]) == {"everyone", "some", "disk", "disk, some"}
        assert max(told["gaps"].values()) < 1e-12
        # 19 clients, three on each device: the second process has four devices of which the last has one client only.
        assert told["read, disk"] == list(range(12) if number == "0" else range(12, 19))
        assert told["resumed"]
        assert "run: the arguments must be the same in all 2 processes" in told["seed"]
        assert "Give a folder that all of them see" in told["folder"]
        assert "run this one in a single process" in told["privacy"]


if __name__ == "__main__":
    made = {"eight": eight_devices, "two": two_processes}[sys.argv[1]]
    made(Path(sys.argv[2]), *([sys.argv[3:]] if made is eight_devices else sys.argv[3:]))
