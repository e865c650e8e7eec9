"""Programs that a process has compiled: let go in time, and not made again for a function that is the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative._base.messages import PerformativeWarning
from performative._engine import programs

POPULATION = pf.populations.Gaussian([0.0, 1.0], 0.3, 1.0)


def compiled(call):
    """How many programs the call compiles."""
    events = []

    def listen(name, *_, **__):
        if name.endswith("backend_compile_duration"):
            events.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        call()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return len(events)


def run(loss):
    pf.run(
        pf.Problem(loss, POPULATION),
        pf.p_fedavg(rate=0.1),
        3,
        0.0,
        record=pf.Record(risks=False, stable=0.0, optimal=0.0),
    )


def test_a_lambda_that_is_written_anew_is_compiled_once():
    def fresh():
        return lambda theta, z: jnp.sum((theta - z) ** 2)

    first = compiled(lambda: run(fresh()))
    assert first > 0
    assert compiled(lambda: run(fresh())) == 0


def test_what_a_function_holds_counts():
    def made(scale):
        return lambda theta, z: scale * jnp.sum((theta - z) ** 2)

    one, same, other = made(2.0), made(2.0), made(3.0)
    assert programs.same_function(one) is one
    assert programs.same_function(same) is one
    assert programs.same_function(other) is other
    assert programs.same_function(made(jnp.ones(()))) is not programs.same_function(made(jnp.ones(())))
    assert programs.same_function(pf.losses.ridge(0.1)) == pf.losses.ridge(0.1)


def test_a_function_that_is_made_again_and_again_is_said_once():
    def made(scale):
        return lambda theta, z: jnp.sum(scale * (theta - z) ** 2)

    kept = [made(np.ones(3)) for _ in range(9)]
    with pytest.warns(PerformativeWarning, match="function-made-anew") as said:
        for one in kept:
            programs.same_function(one)
    assert len(said) == 1


def test_programs_are_let_go_before_the_system_ends_the_process(tmp_path, monkeypatch):
    cleared = []
    maps, limit = tmp_path / "maps", tmp_path / "limit"
    monkeypatch.setattr(programs, "_MAPS", maps)
    monkeypatch.setattr(programs, "_LIMIT", limit)
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(True))
    assert not programs.let_go()  # a system without such files
    limit.write_text("100\n")
    maps.write_text("a map\n" * 49)
    assert not programs.let_go() and not cleared
    maps.write_text("a map\n" * 50)
    assert programs.let_go() and cleared
