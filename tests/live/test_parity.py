"""A federation gives the trajectory of `pf.run` with the same seed, whatever parts it is made of.

To the bit against the executor that runs the same programs, one client after the other. The executors that run a batch
of clients at once add in another order, and differ in the last bit.
"""

import threading

import jax
import numpy as np
import pytest
from federations import federation, gaussian, members, simulated, transport

import performative as pf
from performative._engine.setup import init_state
from performative._engine.simulated import federated_round
from performative.live import read_events, rehearse, serve

EIGHTH = {"rate": 0.1, "batch": pf.Fixed(4)}
UNEQUAL = np.arange(1, 6) / 15
# DiceSGD's memory is clipped too: large enough not to bite.
EXACT = {
    "P-FedAvg, Scheme I": pf.p_fedavg(
        **EIGHTH | {"rate": pf.schedules.harmonic(2.0, 20.0)}, local_steps=3, participation=pf.SchemeOne(3)
    ),
    "FedVARP": pf.fedvarp(**EIGHTH, local_steps=2, participation=pf.SchemeTwo(3)),
    "SCAFFOLD": pf.scaffold(**EIGHTH, local_steps=2, participation=pf.SchemeTwo(3), deploy="round"),
    "DiceSGD": pf.dicesgd(clip=1.0, memory_clip=50.0, noise_multiplier=0.0, **EIGHTH, local_steps=2),
}
CLOSE = {
    "FedNova": pf.fednova(**EIGHTH, participation=pf.participation.LocalWork(pf.SchemeTwo(3), [1, 2, 3, 2, 1])),
    "Sparse": pf.p_fedavg(**EIGHTH, channel=pf.channels.Sparse(2), participation=pf.SchemeTwo(3)),
    "RandomK": pf.p_fedavg(**EIGHTH, channel=pf.channels.RandomK(2), participation=pf.SchemeTwo(3)),
    "Quantized": pf.p_fedavg(**EIGHTH, channel=pf.channels.Quantized(4), deploy=pf.Every(2)),
    "whoever is there": pf.p_fedavg(**EIGHTH, participation=pf.participation.Available(0.4)),
    "FedExP": pf.fedexp(**EIGHTH, cap=3.0),
    "static": pf.fedavg(**EIGHTH),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "P-FedAvg, Scheme I" else pytest.mark.slow) for n in EXACT],
)
def test_same_bits(name, tmp_path):
    made = federation(gaussian(weights=UNEQUAL), EXACT[name])
    live, run = rehearse(made, tmp_path), simulated(made, executor="loop")
    assert np.array_equal(live.theta, run.theta)
    assert np.array_equal(live["uploads"], run["uploads"])
    assert np.array_equal(live.weights, run.weights)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "FedNova")) for n in CLOSE | EXACT])
def test_the_same_to_rounding(name, tmp_path):
    made = federation(gaussian(weights=UNEQUAL), (CLOSE | EXACT)[name])
    live, run = rehearse(made, tmp_path), simulated(made)
    np.testing.assert_allclose(live.theta, run.theta, rtol=0, atol=1e-15 if name in EXACT else 1e-12)
    assert set(run.records) <= set(live.records)


@pytest.mark.slow
def test_the_first_k_that_answer(tmp_path):
    """Everyone is asked; those that came first count p_i N / K; the others' memories do not move."""
    race = pf.FirstK(2, pf.participation.Exponential(1.0))
    made = federation(algorithm=pf.p_fedavg(**EIGHTH, participation=race, deploy="round"))
    late = threading.Event()

    def slow_unless(client, answer):
        def wait(request):
            if client not in (1, 3):
                late.wait()
            return answer(request)

        return wait

    carrier = transport(made, tmp_path, slow_unless)
    try:
        live = serve(made, carrier, tmp_path / "server")
    finally:
        late.set()
        carrier.close()
    np.testing.assert_allclose(live.participation[0], [0, 0.5, 0, 0.5, 0])
    # The same as everyone taking part, with all the weight on these two.
    both = federation(gaussian(weights=[0, 0.5, 0, 0.5, 0]), pf.p_fedavg(**EIGHTH, deploy="round"))
    np.testing.assert_allclose(live.theta, simulated(both).theta, rtol=0, atol=1e-12)
    assert not read_events(tmp_path / "server")  # those who came late did nothing wrong
    assert np.all(live["missing"] == 0)


def test_memories_of_clients_are_those_of_the_simulation(tmp_path):
    """The file on a client's disk holds what the simulation holds for it, to the bit: here DiceSGD's error memory."""
    made = federation(algorithm=EXACT["DiceSGD"], rounds=4)
    rehearse(made, tmp_path)
    with made.precision():
        ready = made.ready
        state = init_state(ready.setup, ready.start, False)
        for _ in range(4):
            state, _ = federated_round(ready.setup, state, ready.keys, "loop")
        for i, member in members(made, tmp_path).items():
            last = member.store.load(ready.memory_like)
            assert (last.round, last.accepted) == (3, 2)
            mine = jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), state.clients)
            found, expected = jax.tree.leaves(last.after), jax.tree.leaves(mine)
            assert found
            assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
