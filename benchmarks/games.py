"""A game of a thousand players in one compiled program, compared with a hand-written scan of the same game."""

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from benchmarks.core import LEAN, alternate

PLAYERS, ROUNDS, RATE, PENALTY = 1000, 200, 0.2, 1.0


def thousand_players() -> dict:
    """Sellers whose demand depends on all prices: simultaneous gradient play, one sample per step."""
    random = np.random.default_rng(0)
    m = 0.2 * random.standard_normal((PLAYERS, PLAYERS)) / np.sqrt(PLAYERS) - np.diag(random.uniform(0.5, 1.0, PLAYERS))
    b = random.uniform(1.0, 2.0, PLAYERS)
    game = pf.cases.linear_game(b, m, PENALTY, 0.1)
    loop = []

    def ours():
        history = pf.run(game, pf.p_fedavg(RATE), ROUNDS, **LEAN)
        loop.append(history.meta["seconds"])
        return history.theta

    coupling, level = jnp.asarray(m, jnp.float32), jnp.asarray(b, jnp.float32)

    @jax.jit
    def scan(key):
        def step(p, key):
            z = level + coupling @ p + 0.1 * jax.random.normal(key, p.shape)
            p = p - RATE * (PENALTY * p - z)
            return p, p

        return jax.lax.scan(step, jnp.zeros(PLAYERS), jax.random.split(key, ROUNDS))[1]

    best = alternate({"ours": ours, "same": lambda: scan(jax.random.key(0))}, 3)
    inside = min(loop[1:])
    point = np.linalg.solve(PENALTY * np.eye(PLAYERS) - m, b)
    off = float(np.sqrt(np.mean((np.asarray(ours())[0, -1] - point) ** 2)))
    return {
        "benchmark": f"g: a game of {PLAYERS} players, {ROUNDS} rounds",
        "ours_s": best["ours"],
        "loop_s": inside,
        "reference_s": best["same"],
        "ratio": inside / best["same"],
        "call_ratio": best["ours"] / best["same"],
        "client_steps_per_s": PLAYERS * ROUNDS / inside,
        "note": f"the reference has one matrix product per round; prices end {off:.2g} off the stable point (rms)",
    }


BENCHMARKS = {"g": thousand_players}
