"""Executor `sharded`: over 8 devices, and over two processes, the same trajectory as on one device."""

import json

import pytest
from sharded_cases import FAST, SLOW, gap, gaussian, options_of, same, small
from sharded_runs import DEVICES, start, start_two, wait

import performative as pf


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


@pytest.mark.slow
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
        assert "Use a folder that all of them can read" in told["folder"]
        assert "run this in a single process" in told["privacy"]
