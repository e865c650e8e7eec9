# %% [markdown]
# # Bring your own population
#
# How do people react to a model? `Strategic` has two responses, both to a linear score. This example adds a third, in a
# class of a few lines: people who climb the score of any model. Everything else (runs, exact points, certificates) then
# works as with built-in populations. Run it as a script (a minute, offline) or open it as a notebook. It writes
# `bring_your_own_population.png`.

# %%
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import performative as pf
from performative.testing import check_part

# %% [markdown]
# ## The class
#
# A population is written for ONE client and ONE sample: `sample(noise, world, theta)` returns a person's data under the
# deployed model. Only that is required. Fields marked `pf.per_client` have one row per client; the engine splits the
# rows.
#
# Here a person with features $\bar x$ is scored, and accepted with probability $\sigma(\text{score})$. People take one
# gradient step on the logarithm of that probability:
#
# $$x = \bar x + r_i \, \nabla_x \log \sigma(\text{score}(\theta, \bar x)),$$
#
# so those who are accepted anyway hardly move. The label (whether the loan will be paid back) does not change. JAX
# differentiates the score, so it may be a linear function, a polynomial or a network.


# %%
def climb(score, reach, theta, x):
    return x + reach * jax.grad(lambda x: jax.nn.log_sigmoid(score(theta, x)))(x)


class Climbers(pf.populations.AbstractPopulation):
    """People who take a gradient step on the logarithm of their acceptance probability."""

    x: Any = pf.per_client(table=True)  # [N, m, d]; table=True: looked up row by row, never copied
    y: Any = pf.per_client(table=True)  # [N, m]
    reach: Any = pf.per_client()  # r_i, one per client or one for all
    score: Callable = eqx.field(static=True)  # score(theta, x) for one person

    @property
    def capacity(self):  # rows per client
        return self.y.shape[-1]

    def draw(self, key, shape, theta, rows=None):  # randomness independent of theta: which row
        return jax.random.randint(key, shape, 0, self.capacity, jnp.int32) if rows is None else rows

    def sample(self, noise, world, theta):
        return climb(self.score, self.reach, theta, self.x[noise]), self.y[noise]

    def quadrature(self, theta, count):  # every row once, with equal weight: expectations over the table are exact
        return jnp.arange(self.capacity, dtype=jnp.int32), jnp.full(self.capacity, 1 / self.capacity)


# %% [markdown]
# `draw` and `quadrature` are there because the data are a table: batches can then go through it without replacement,
# and exact points are exact. Without them, `noise` would be a random key, and `sample` would draw the row itself.
#
# ## People and a model
#
# The people in five branches form two half-moons, which are not linearly separable. The score is a polynomial; the loss
# is the logistic loss, written for one sample.


# %%
def polynomial(theta, x):
    return theta[0] + jnp.sum(theta[1:3] * x) + theta[3] * x[0] ** 3


def logistic(theta, z):
    x, y = z
    score = polynomial(theta, x)
    return jax.nn.softplus(score) - y * score + 0.01 * jnp.sum(theta**2)


branches, each = 5, 60
x, y = make_moons(branches * each, noise=0.2, random_state=0)
x, y = x.reshape(branches, each, 2) - x.mean(axis=0), y.reshape(branches, each)
reach = np.linspace(0.1, 0.3, branches)  # some know the model better
problem = pf.Problem(logistic, Climbers(x, y, reach, polynomial))
start = np.zeros(4)

# %% [markdown]
# ## Does it satisfy the contract?
#
# The engine maps parts over clients, compiles them, sweeps their numbers, and pads their data. `check_part` checks that
# a part allows all of this; the error names the broken rule.

# %%
checked = check_part(problem.population, problem, theta=start)
print(f"checked against {len(checked)} rules: {', '.join(checked)}")

# %% [markdown]
# ## Will retraining converge, and where?

# %%
certificate = pf.certify(problem, theta=start, samples=1024)
print(certificate)
stable, once = (np.asarray(point) for point in (certificate.stable, certificate.static))

# %% [markdown]
# ## Training
#
# Now train in a federation, with three branches per round and batches of 16 people; each round's model is deployed.

# %%
algorithm = pf.p_fedavg(
    pf.schedules.harmonic(40.0, 40.0), local_steps=4, batch=pf.Fixed(16), participation=pf.SchemeTwo(3), deploy="round"
)
history = pf.run(problem, algorithm, rounds=200, theta=start, repeats=5, record=pf.Record(stable=stable))
print(history)

# %% [markdown]
# ## How people react


# %%
judge = jax.jit(jax.vmap(polynomial, in_axes=(None, 0)))  # the scores of many people


@jax.jit
def response(theta):
    """The responses of all people of all branches, [branches, each, 2]."""

    def of_branch(reach, people):
        return jax.vmap(lambda person: climb(polynomial, reach, theta, person))(people)

    return jax.vmap(of_branch)(reach, x)


def share_right(theta, people):
    return np.mean(np.asarray(judge(theta, people.reshape(-1, 2)) > 0) == y.ravel())


learned = history.final.mean(axis=0)
right = {
    "trained once, on paper": share_right(once, x),
    "trained once, deployed": share_right(once, response(once)),
    "trained as people react": share_right(learned, response(learned)),
    "stable point": share_right(stable, response(stable)),
}
figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained", width_ratios=(1, 1, 0.9))
arrows = dict(angles="xy", scale_units="xy", scale=1, alpha=0.35, width=0.003)
grid = np.stack(np.meshgrid(np.linspace(-2.4, 2.6, 200), np.linspace(-1.7, 1.9, 200)), axis=-1)
for ax, theta, title in zip(axes, (once, stable), ("Trained once", "Retrained to convergence"), strict=False):
    scores = judge(theta, grid.reshape(-1, 2)).reshape(grid.shape[:2])
    ax.contourf(grid[..., 0], grid[..., 1], scores, [0, np.inf], colors=["#009E73"], alpha=0.12)
    ax.contour(grid[..., 0], grid[..., 1], scores, [0], colors=["#009E73"], linewidths=1.5)
    where = np.asarray(response(theta))
    moved = where - x
    for label, color in ((0, "#D55E00"), (1, "#0072B2")):
        mine = y == label
        ax.quiver(*x[mine].T, *moved[mine].T, **arrows, color=color)
        ax.scatter(*where[mine].T, s=9, color=color, label=("will not pay back", "will pay back")[label])
    ax.set(title=title, xlim=(-2.4, 2.6), ylim=(-1.7, 1.9), xticks=[], yticks=[])
axes[0].legend(frameon=False, loc="upper left")
axes[1].text(-2.25, 1.5, "shaded: accepted\narrows: how people moved")
history.plot("distance_to_stable", ax=axes[2], label="p_fedavg")
axes[2].set_title("Convergence")
figure.savefig("bring_your_own_population.png", dpi=120)

# %%
distance = history["distance_to_stable"].mean(axis=0)
wrong = {name: f"{100 * (1 - share):.0f}%" for name, share in right.items()}
for name, share in right.items():
    print(f"{name:>28}: accuracy {100 * share:.1f}%")
step = np.linalg.norm(response(once) - x, axis=-1).mean()
print(
    f"The model trained once moves people by {step:.2f} on average, and then misclassifies "
    f"{wrong['trained once, deployed']} of them instead of {wrong['trained once, on paper']}. "
    f"Retraining converges: each step leaves {100 * certificate.contraction:.0f}% of the gap. The distance of "
    f"p_fedavg to the stable point fell from {distance[0]:.2f} to {distance[-1]:.2f}; that point misclassifies "
    f"{wrong['stable point']}."
)
