"""Networks on many clients: compared with PyTorch and hand-written JAX on a CPU, with hardware limits on a GPU."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import performative as pf
from benchmarks import convolutional
from benchmarks.core import LAST, QUIET

STEPS, BATCH = 10, 32
# Operations of one sample's forward and backward pass: 2 per weight and position, once forward and twice backward, but
# the first layer has no gradient for the image.
PASSES = {"conv1": 2 * 28 * 28 * 9 * 16, "conv2": 2 * 14 * 14 * 144 * 32, "dense": 2 * (1568 * 64 + 640)}
FLOPS = 2 * PASSES["conv1"] + 3 * (PASSES["conv2"] + PASSES["dense"])
# Numbers that the matrix-product program reads and writes for one sample (src/performative/networks/halving.py).
# Forward: patches, products, pooled, for both convolutions; backward: the same in reverse.
PATCHES_1, PRODUCTS_1, POOLED_1 = 14 * 14 * 16, 14 * 14 * 64, 14 * 14 * 16
CELLS_2, PATCHES_2, PRODUCTS_2, POOLED_2 = 8 * 8 * 64, 7 * 7 * 256, 7 * 7 * 128, 7 * 7 * 32
MOVED = (
    2 * PATCHES_1 + 2 * PRODUCTS_1 + 2 * POOLED_1 + 2 * CELLS_2 + 2 * PATCHES_2 + 2 * PRODUCTS_2 + 2 * POOLED_2
    + 2 * POOLED_2 + 2 * PRODUCTS_2 + (PATCHES_2 + PRODUCTS_2) + 2 * PATCHES_2 + 2 * CELLS_2
    + POOLED_1 + 2 * PRODUCTS_1 + PATCHES_1
)  # fmt: skip


def _data(clients: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((clients, rows, 28, 28), np.float32), rng.integers(0, 10, (clients, rows))


def _ours(x, y, cohort: int):
    theta, network = pf.networks.cnn((28, 28), 10)
    problem = pf.Problem(pf.losses.cross_entropy(network), pf.populations.Static(x, y))
    who = pf.Full() if cohort == len(x) else pf.SchemeTwo(cohort)
    algorithm = pf.fedavg(rate=convolutional.RATE, local_steps=STEPS, batch=pf.Fixed(BATCH), participation=who)

    def run(rounds: int, **options):
        # One chunk: the clock starts when the data are on the device and the program is compiled.
        return pf.run(problem, algorithm, rounds, theta=theta, record=LAST, **QUIET, **options)

    return run


def _a_round(call, few: int, many: int, times: int) -> float:
    """Seconds per round from the difference between `many` and `few`, so one-time costs do not count."""
    best = {few: float("inf"), many: float("inf")}
    for turn in range(times + 1):
        for rounds in best:
            began = time.perf_counter()
            call(rounds)
            if turn:
                best[rounds] = min(best[rounds], time.perf_counter() - began)
    return (best[many] - best[few]) / (many - few)


def networks() -> dict:
    """conv16-conv32-dense64, 100 clients, 10 per round, 10 local steps of batch 32, on this machine's cores."""
    x, y = _data(100, 600)
    cohorts = np.random.default_rng(1).permuted(np.tile(np.arange(100), (16, 1)), axis=1)[:, :10]
    here = [jnp.asarray(x), jnp.asarray(y, jnp.int32)]
    ours = _ours(x, y, 10)

    def by_hand(mode, convolve, pool):
        def call(rounds):
            made = convolutional.rounds(
                mode, convolve, pool, STEPS, BATCH, convolutional.start(), *here, jnp.asarray(cohorts[:rounds]),
                jax.random.key(0),
            )  # fmt: skip
            jax.block_until_ready(made)

        return call

    seconds = {"ours": _a_round(ours, 1, 4, 2)}
    hand = {
        "map_im2col": by_hand("map", convolutional.im2col, convolutional.pool_slices),
        "vmap_im2col": by_hand("vmap", convolutional.im2col, convolutional.pool_slices),
    }
    for name, call in hand.items():
        seconds[name] = _a_round(call, 1, 4, 2)
    row = {
        "benchmark": "networks: CNN, 100 clients, 10 a round, 10 steps of batch 32",
        "ours_s": seconds["ours"],
        "reference_s": min(seconds[name] for name in hand),
        **{f"{name}_s": seconds[name] for name in hand},
        "compute": ours(1).meta["compute"],
        "note": "seconds per round; reference: the best hand-written JAX variant",
    }
    row["ratio"] = row["ours_s"] / row["reference_s"]
    return row | _against_torch(x, y, cohorts, row["ours_s"])


def _against_torch(x, y, cohorts, ours: float) -> dict:
    try:
        import torch
    except ModuleNotFoundError:
        return {"torch": 'skipped: PyTorch is not installed (pip install "performative[bench]")'}
    found = {"torch_threads": torch.get_num_threads()}
    for name, channels_last in (("torch", False), ("torch_channels_last", True)):
        one_round = convolutional.torch_round(x, y, STEPS, BATCH, channels_last)
        seconds = _a_round(lambda rounds: [one_round(cohort) for cohort in cohorts[:rounds]], 1, 4, 2)  # noqa: B023  # used at once
        found |= {f"{name}_s": seconds, f"{name}_ratio": ours / seconds}
    return found


def networks_gpu() -> dict:
    """The same network on 100, 1,000 and 10,000 clients per round on one GPU, float32 and bfloat16."""
    label = "networks_gpu: CNN, 10 steps of batch 32, a round of 100, 1,000 and 10,000 clients"
    if jax.default_backend() != "gpu":
        return {"benchmark": label, "note": "skipped: JAX sees no GPU"}
    rate, bandwidth = _matrix_rate(), _bandwidth()
    row = {"benchmark": label, "matrix_tflops": rate / 1e12, "bandwidth_tb_s": bandwidth / 1e12}
    for clients in (100, 1_000, 10_000):
        run = _ours(*_data(clients, 60), clients)
        for dtype, width in (("float32", 4), ("bfloat16", 2)):
            seconds = _a_round(lambda rounds: run(rounds, dtype=dtype), 1, 1 + max(4, 8_000 // clients), 2)  # noqa: B023  # at once
            samples = clients * STEPS * BATCH
            row |= {
                f"{clients}_{dtype}_ms": 1e3 * seconds,
                f"{clients}_{dtype}_tflops": samples * FLOPS / seconds / 1e12,
                f"{clients}_{dtype}_of_matrix_rate": samples * FLOPS / seconds / rate,
                f"{clients}_{dtype}_of_bandwidth": samples * MOVED * width / seconds / bandwidth,
                f"{clients}_{dtype}_compute": run(1, dtype=dtype).meta["compute"],
            }
    return row


def _seconds(function, *args) -> float:
    jax.block_until_ready(function(*args))
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(function(*args))
        best = min(best, time.perf_counter() - began)
    return best


def _matrix_rate(side: int = 8192) -> float:
    """Operations per second of a large bfloat16 matrix product."""
    return 2 * side**3 / _seconds(jax.jit(jnp.matmul), *2 * [jnp.ones((side, side), jnp.bfloat16)])


def _bandwidth(numbers: int = 1 << 29) -> float:
    """Bytes per second that an elementwise operation reads and writes."""
    return 8 * numbers / _seconds(jax.jit(lambda v: v * 1.5), jnp.ones(numbers, jnp.float32))


BENCHMARKS = {"networks": networks, "networks_gpu": networks_gpu}
