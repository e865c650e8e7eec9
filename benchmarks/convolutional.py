"""Hand-written JAX and PyTorch for one round of a small convolutional network on many clients.

conv16 - pool - conv32 - pool - dense64 - dense10 on 28x28 images, E local steps of batch n: each draws its rows, and
the server averages the clients' models. None of the engine's code is used here.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.references import fold_pair

RATE = 0.05
SHAPES = {
    "w1": (3, 3, 1, 16), "b1": (16,), "w2": (3, 3, 16, 32), "b2": (32,),
    "w3": (1568, 64), "b3": (64,), "w4": (64, 10), "b4": (10,),
}  # fmt: skip


def start():
    rng = np.random.default_rng(0)
    return {
        name: jnp.asarray(rng.standard_normal(s) / np.sqrt(max(np.prod(s[:-1]), 1)), jnp.float32)
        for name, s in SHAPES.items()
    }


def plain(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def im2col(x, w):
    height, width = x.shape[1:3]
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    patches = [x[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return jnp.concatenate(patches, axis=-1) @ w.reshape(-1, w.shape[-1])


def pool_window(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def pool_slices(x):
    x = jnp.maximum(x[:, ::2], x[:, 1::2])
    return jnp.maximum(x[:, :, ::2], x[:, :, 1::2])


def loss(convolve, pool, p, x, y):
    x = pool(jax.nn.relu(convolve(x[..., None], p["w1"]) + p["b1"]))
    x = pool(jax.nn.relu(convolve(x, p["w2"]) + p["b2"]))
    x = jax.nn.relu(x.reshape(len(x), -1) @ p["w3"] + p["b3"])
    scores = jax.nn.log_softmax(x @ p["w4"] + p["b4"])
    return -jnp.mean(jnp.take_along_axis(scores, y[:, None], axis=1))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4), donate_argnums=5)
def rounds(mode, convolve, pool, steps, batch, p, x, y, cohorts, key):
    """`cohorts` [rounds, K] are the participants; mode "map" runs clients sequentially, "vmap" all at once."""

    def client(p, key, who):
        rows = jax.random.randint(key, (steps, batch), 0, x.shape[1])

        def step(p, picked):
            slope = jax.grad(functools.partial(loss, convolve, pool))(p, x[who, picked], y[who, picked])
            return jax.tree.map(lambda value, g: value - RATE * g, p, slope), None

        return lax.scan(step, p, rows)[0]

    def one_round(p, inputs):
        index, cohort = inputs
        keys = jax.vmap(lambda who: fold_pair(key, index, who))(cohort)
        if mode == "map":
            each = lax.map(lambda pair: client(p, *pair), (keys, cohort))
        else:
            each = jax.vmap(client, (None, 0, 0))(p, keys, cohort)
        return jax.tree.map(lambda models: jnp.mean(models, axis=0), each), None

    return lax.scan(one_round, p, (jnp.arange(len(cohorts)), cohorts))[0]


def torch_round(x, y, steps, batch, channels_last=False):
    """A function that runs one round of the same work with PyTorch, one client at a time, for a given cohort."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, 10))
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    images, labels = torch.from_numpy(np.asarray(x))[:, :, None], torch.from_numpy(np.asarray(y)).long()
    cross_entropy = nn.CrossEntropyLoss()

    def one_round(cohort):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        total = {name: torch.zeros_like(value) for name, value in before.items()}
        for who in cohort:
            model.load_state_dict(before)
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            for _ in range(steps):
                rows = torch.randint(images.shape[1], (batch,))
                z = images[who, rows]
                if channels_last:
                    z = z.contiguous(memory_format=torch.channels_last)
                optimizer.zero_grad()
                cross_entropy(model(z), labels[who, rows]).backward()
                optimizer.step()
            for name, value in model.state_dict().items():
                total[name] += value / len(cohort)
        model.load_state_dict(total)

    return one_round
