# %% [markdown]
# # Bring your own network
#
# A model is any pytree of arrays, and so is a network. Here a custom equinox network, a built-in one and a Flax one
# learn to classify digits at twenty clients. Run it as a script (a minute, offline) or open it as a notebook. It writes
# `bring_your_own_network.png`.

# %%
import importlib.util

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import performative as pf

# %% [markdown]
# ## Images at clients
#
# scikit-learn includes 1,797 handwritten digits of 8 x 8 pixels. A fifth of them are held out. Each client mostly has
# images of a few of the ten digits.

# %%
digits = pf.data.digits()
images, labels = digits.x.reshape(-1, 8, 8) / 16, digits.y
order = np.random.default_rng(0).permutation(len(labels))
test, train = order[:360], order[360:]
parts = pf.partition.dirichlet(labels[train], clients=20, alpha=0.5, seed=0, least=20)
x, y, count = pf.partition.tables(images[train], labels[train], parts)
population = pf.populations.Static(x, y, count)  # Strategic, Reweighted or your own if the data react
weights = count / count.sum()

# %% [markdown]
# ## A custom network
#
# The network is written for one image, in [equinox](https://docs.kidger.site/equinox). `pf.networks.split` splits it:
# `theta` contains its arrays, and `network(theta, x)` returns the scores of one image. State that layers keep between
# calls (BatchNorm) is not part of theta, so `split` raises an error; GroupNorm and LayerNorm are fine.


# %%
class Reader(eqx.Module):
    convolution: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm
    pool: eqx.nn.MaxPool2d
    out: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.convolution = eqx.nn.Conv2d(1, 32, kernel_size=3, padding=1, key=first)
        self.norm = eqx.nn.GroupNorm(groups=4, channels=32)
        self.pool = eqx.nn.MaxPool2d(2, 2)
        self.out = eqx.nn.Linear(32 * 4 * 4, 10, key=second)

    def __call__(self, x):
        x = self.norm(self.convolution(x[None]))  # equinox expects channels first
        return self.out(jnp.ravel(self.pool(jax.nn.relu(x))))


# %%
def learn(theta, network, **options):
    """Five of twenty clients per round, each taking 10 local steps on batches of 16 images."""
    problem = pf.Problem(pf.losses.cross_entropy(network), population, weights)
    algorithm = pf.fedavg(0.3, local_steps=10, batch=pf.Fixed(16), participation=pf.SchemeTwo(5))
    return pf.run(problem, algorithm, rounds=20, theta=theta, record=pf.Record(risks=False, consensus=False), **options)


def share_read(history, network):
    """Accuracy on the held-out images after each round."""

    @jax.jit
    def share(theta):
        scores = jax.vmap(network, in_axes=(None, 0))(theta, images[test].astype(np.float32))
        return jnp.mean(jnp.argmax(scores, axis=1) == labels[test])

    models = jax.tree.map(lambda leaf: leaf[0], history.theta)  # the first and only repeat: [rounds + 1, ...]
    return jax.lax.map(share, models)


theta, network = pf.networks.split(Reader(jax.random.key(0)))
history = learn(theta, network)
shares = {"own network (equinox)": share_read(history, network)}
print(
    f"{sum(leaf.size for leaf in jax.tree.leaves(theta)):,} parameters; "
    f"accuracy {shares['own network (equinox)'][-1]:.1%}"
)

# %% [markdown]
# `run` chose the layout of the computation. On a CPU, convolutions become matrix products, and clients run
# sequentially, because one product already uses all cores. On a GPU, clients run in parallel, as many as fit in memory.
# `clients_at_once=` overrides this; the result is the same up to rounding.

# %%
print("compute:", history.meta["compute"])
print("memory: ", history.meta["memory"])

# %% [markdown]
# ## Built-in networks and bfloat16
#
# `pf.networks` has an `mlp(inputs, outputs)`, a `cnn(shape, outputs)` and a `resnet18(shape, outputs)`; each returns
# theta and the network. `dtype="bfloat16"` computes gradients in half precision, for hardware that is fast at it; the
# model and its updates stay in float32.

# %%
theta, network = pf.networks.cnn((8, 8), 10, channels=(16,), width=64)
history = learn(theta, network, dtype="bfloat16")
shares["pf.networks.cnn, bfloat16"] = share_read(history, network)
print("compute:", history.meta["compute"])
print("the model is kept in", ", ".join({str(leaf.dtype) for leaf in jax.tree.leaves(history.theta)}))

# %% [markdown]
# ## Flax
#
# A Flax network needs no wrapper: theta is what `init` returns, and the network is a function of theta and one image.
# Make it a top-level function of a module, not a new lambda each time, since JAX compiles once per function.

# %%
if importlib.util.find_spec("flax") is None:
    print("Flax is not installed (pip install flax), so this cell is skipped.")
else:
    from flax import linen

    class FlaxReader(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.relu(linen.Conv(16, (3, 3))(x[..., None]))
            x = linen.max_pool(x, (2, 2), (2, 2))
            return linen.Dense(10)(x.reshape(len(x), -1))

    model = FlaxReader()

    def scores(theta, x):
        return model.apply({"params": theta}, x[None])[0]

    theta = model.init(jax.random.key(0), jnp.zeros((1, 8, 8)))["params"]
    flax_history = learn(theta, scores)
    shares["Flax"] = share_read(flax_history, scores)
    print("compute:", flax_history.meta["compute"])

# %% [markdown]
# ## Results

# %%
final = jax.tree.map(lambda leaf: leaf[0], history.final)
read = np.argmax(jax.vmap(network, in_axes=(None, 0))(final, images[test].astype(np.float32)), axis=1)
wrong = np.flatnonzero(read != labels[test])

figure = plt.figure(figsize=(10.5, 4.2), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(1.5, 1))
ax = left.subplots()
for (label, share), color in zip(shares.items(), ("#0072B2", "#D55E00", "#009E73", "#CC79A7"), strict=False):
    ax.plot(100 * np.asarray(share), color=color, label=label)
ax.set(xlabel="round", ylabel="held-out accuracy (%)", ylim=(0, 100), xticks=range(0, 21, 5))
ax.legend(frameon=False, loc="lower right")
right.suptitle(f"{len(wrong)} of {len(test)} are misclassified by the CNN")
for place, ax in enumerate(right.subplots(3, 4).flat):
    ax.axis("off")
    if place < len(wrong):
        ax.imshow(images[test][wrong[place]], cmap="gray_r")
        ax.set_title(f"{labels[test][wrong[place]]}, predicted {read[wrong[place]]}", fontsize=8)
figure.savefig("bring_your_own_network.png", dpi=120)
for name, share in shares.items():
    print(f"{name:>26}: held-out accuracy {share[-1]:.1%}")
best = max(shares, key=lambda name: shares[name][-1])
print(
    f"After 20 rounds with 5 of 20 clients each, {best} classifies {shares[best][-1]:.1%} of {len(test)} held-out "
    f"images correctly; gradients in bfloat16 reach {shares['pf.networks.cnn, bfloat16'][-1]:.1%} with a float32 model."
)
