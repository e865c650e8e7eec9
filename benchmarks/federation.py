"""A federation on Flower compared with a bare one: the credit example with ten banks, real processes on loopback."""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

NODES = int(os.environ.get("PERFORMATIVE_BENCH_NODES", 10))
ROUNDS = int(os.environ.get("PERFORMATIVE_BENCH_ROUNDS", 50))
# A bare round takes long and varies little.
BARE_ROUNDS = int(os.environ.get("PERFORMATIVE_BENCH_BARE_ROUNDS", 8))

BARE_PROJECT = """
[project]
name = "bare"
version = "1.0.0"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "performative"
[tool.flwr.app.components]
serverapp = "app:server"
clientapp = "app:client"
[tool.flwr.app.config]
rounds = 1
log = ""
"""

BARE_APP = '''
"""Flower's own FedAvg; its clients run five jitted JAX steps of logistic regression on the same table."""
import json, time
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

client = ClientApp()
server = ServerApp()


@client.train()
def train(message, context):
    import jax, jax.numpy as jnp

    with np.load(FILE) as table:
        x, y = table[f"x{context.node_config['client']}"], table[f"y{context.node_config['client']}"]

    def loss(theta, x, y):
        return jnp.mean(jnp.logaddexp(0.0, x @ theta) - y * (x @ theta)) + 0.02 * jnp.sum(theta**2)

    @jax.jit
    def steps(theta, key):
        def step(theta, key):
            rows = jax.random.randint(key, (32,), 0, x.shape[0])
            return theta - 0.1 * jax.grad(loss)(theta, jnp.asarray(x)[rows], jnp.asarray(y)[rows]), None

        return jax.lax.scan(step, theta, jax.random.split(key, 5))[0]

    (theta,) = message.content["arrays"].to_numpy_ndarrays()
    theta = np.asarray(steps(jnp.asarray(theta), jax.random.key(0)))
    content = {"arrays": ArrayRecord([theta]), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(RecordDict(content), reply_to=message)


@server.main()
def main(grid, context):
    rounds, times = int(context.run_config["rounds"]), []

    class Timed(FedAvg):
        def configure_train(self, server_round, *rest):
            times.append(time.time())
            return super().configure_train(server_round, *rest)

    strategy = Timed(fraction_evaluate=0.0, min_available_nodes=NODES)
    strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(WIDTH, np.float32)]), num_rounds=rounds)
    times.append(time.time())
    with open(context.run_config["log"], "w") as file:
        json.dump(times, file)
'''


def federation() -> dict[str, Any]:
    """Seconds per round of ours and of a bare Flower FedAvg whose clients also run jitted JAX."""
    with tempfile.TemporaryDirectory() as folder:
        ours = _ours(Path(folder) / "ours")
        bare = _bare(Path(folder) / "bare")
    inside = {name: float(np.mean([told[name] for told in ours])) for name in ("seconds", "waited", "worked")}
    steady = float(np.median([told["seconds"] for told in ours[1:]]))
    reference = float(np.median(np.diff(bare)[1:])) if len(bare) > 2 else float(np.mean(np.diff(bare)))
    parts = {
        "server": inside["seconds"] - inside["waited"],
        "client_work": inside["worked"],
        "flower": inside["waited"] - inside["worked"],
    }
    return {
        "benchmark": "federation",
        "nodes": NODES,
        "rounds": len(ours),
        "ours_s": steady,
        "first_round_s": ours[0]["seconds"],
        "reference_s": reference,
        "ratio": steady / reference,
        "missing": sum(told["missing"] + told["rejected"] for told in ours),
        **{f"{name}_s": value for name, value in parts.items()},
        "note": (
            f"federation, {NODES} nodes: of {inside['seconds']:.2f} s per round, the server's own work takes "
            f"{parts['server']:.2f} s, the slowest client's {parts['client_work']:.2f} s, Flower the rest."
        ),
    }


def _ours(app: Path) -> list[dict[str, Any]]:
    from performative.live import app as apps

    apps.write_app(app, NODES)
    rounds: list[dict[str, Any]] = []
    try:
        apps.up(app, apps.load_app(app))
        apps.run(app, resume=False, rounds=ROUNDS, tell=lambda told: None)
        rounds = [json.loads(line) for line in (apps.server_folder(app) / "rounds.jsonl").read_text().splitlines()]
    finally:
        apps.down(app)
    return rounds


def _bare(app: Path) -> list[float]:
    """Start times of the rounds of a bare federation, and the end of the last."""
    from performative.cases import credit
    from performative.live.loopback.processes import run_status, start, stop, submit
    from performative.live.loopback.site import Site

    app.mkdir(parents=True)
    problem = credit(banks=NODES)
    population: Any = problem.population
    table = {}
    for i, count in enumerate(np.asarray(population.count)):
        table |= {f"x{i}": np.float32(population.x[i, :count]), f"y{i}": np.float32(population.y[i, :count])}
    np.savez(app / "table.npz", **table)
    head = f"FILE = {str(app / 'table.npz')!r}\nNODES, WIDTH = {NODES}, {population.x.shape[-1]}\n"
    (app / "app.py").write_text(BARE_APP.replace("client = ClientApp()", head + "client = ClientApp()"))
    (app / "pyproject.toml").write_text(BARE_PROJECT)
    site, log = Site.inside(app), app / "times.json"
    try:
        start(site, NODES, forks=False, timeout=300.0)
        number = submit(site, app, {"rounds": BARE_ROUNDS, "log": str(log)})
        while not log.exists() or not log.read_text():
            status = run_status(site, number)
            if status.over and not log.exists():
                raise RuntimeError(f"the bare federation {status.state}: {status.detail}")
            time.sleep(15)
        time.sleep(1)
        return json.loads(log.read_text())
    finally:
        stop(site)


BENCHMARKS = {"federation": federation}
