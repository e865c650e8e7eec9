# %% [markdown]
# # Bring your own data
#
# This example turns a plain table, with one row per person, into clients, trains an ordinary federation, and then one
# whose people react to the model. Run it as a script (`python examples/bring_your_own_data.py`, half a minute,
# offline), or open it as a notebook: editors and `jupytext --to notebook` support the `# %%` cells. It writes
# `bring_your_own_data.png`.

# %%
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import performative as pf
from performative._engine.risk import decoupled_risk
from performative.plotting import plot_partition

# %% [markdown]
# ## A table
#
# The loan applicants are synthetic; load your own with `pandas.read_csv`. `pf.data.credit()` and others are real data.
# All you need is numeric columns and a label of 0 or 1.

# %%
rng = np.random.default_rng(0)
people = 3000
table = pd.DataFrame(
    {
        "utilization": rng.normal(45, 20, people),  # percent of the credit lines in use
        "open_lines": rng.normal(8, 3, people),
        "income": rng.normal(42, 14, people),
        "late_payments": rng.poisson(1.5, people),
    }
)
features = list(table.columns)
odds = ((table - table.mean()) / table.std()) @ [1.4, 1.0, -0.8, 1.0] - 0.5
table["default"] = (rng.uniform(size=people) < 1 / (1 + np.exp(-odds))).astype(int)

# %% [markdown]
# ## Clients
#
# If your table has a column with the client of each row, use that. Here `pf.partition.dirichlet` assigns applicants to
# six banks: with a small alpha, banks differ in size and in how many of their people default. A quarter of the people
# are held out; features must be scaled with the training data alone.

# %%
parts = pf.partition.dirichlet(table["default"], clients=6, alpha=0.7, seed=3, least=80)
for bank, rows in enumerate(parts):
    table.loc[rows, "bank"] = f"bank {bank}"
train, test = table[: 3 * people // 4].copy(), table[3 * people // 4 :].copy()
center, spread = train[features].mean(), train[features].std()
train[features], test[features] = ((rows[features] - center) / spread for rows in (train, test))

# %% [markdown]
# `pf.partition.tables` builds the arrays `[clients, rows, ...]` that populations expect. All clients have as many rows
# as the largest; the rest is padding, and `count` is the number of real rows, so padding is never drawn.

# %%
hands = [np.flatnonzero(train["bank"] == f"bank {bank}") for bank in range(6)]
x = np.column_stack([train[features], np.ones(len(train))])  # the last column is the intercept
x, y, count = pf.partition.tables(x, train["default"], hands)
print(f"x {x.shape}, y {y.shape}, count {count.tolist()}: {1 - count.sum() / y.size:.0%} of the rows are padding")

# %% [markdown]
# ## The ordinary federation
#
# `Static` data do not change, no matter what is deployed. With weights in proportion to the number of rows, the
# objective is the same as on the pooled data, so scikit-learn on the whole table is the reference.

# %%
ordinary = pf.Problem(
    loss=pf.losses.logistic(1 / len(train), intercept=len(features)),
    population=pf.populations.Static(x, y, count),
    weights=count / count.sum(),
)
method = dict(
    rate=pf.schedules.harmonic(30.0, 100.0),  # 30 / (t + 100) in the t-th local step
    local_steps=4,
    batch=pf.Fixed(16),
    participation=pf.SchemeTwo(3),  # three random banks per round
)
once = pf.run(
    ordinary,
    pf.fedavg(**method),
    rounds=120,
    theta=np.zeros(len(features) + 1),
    repeats=5,
    record=pf.Record(risks=False),
)
pooled = LogisticRegression().fit(train[features], train["default"])


def share_right(theta):
    """Accuracy of a linear model on the held-out applicants, if they do not react."""
    return np.mean((test[features] @ theta[:-1] + theta[-1] > 0) == test["default"])


federated, together = once.final.mean(axis=0), np.append(pooled.coef_, pooled.intercept_)
print(f"held-out accuracy {share_right(federated):.1%}; with pooled data {share_right(together):.1%}")

# %% [markdown]
# ## People react
#
# People soon learn how a score that decides about loans works. Applicants pay off cards and close lines before they
# apply, which does not make them any safer: their features move by `strength` times their weight in the model (in
# standard deviations), and their labels do not change. `Problem.from_frame` takes the table directly, with a column for
# the client. **`strength` is an assumption**, which no past table can reveal; vary it, or measure it
# (`performative audit`). Here people at some banks are better advised than at others.

# %%
strength = {f"bank {i}": 0.4 + 0.08 * i for i in range(6)}
asked = dict(client="bank", label="default", strategic=["utilization", "open_lines"], strength=strength)
problem, kept_apart = (pf.Problem.from_frame(rows, **asked, standardize=False) for rows in (train, test))

# %% [markdown]
# `p_fedavg` deploys the model of every round, so the next round learns from people who have reacted to it. Error rates
# are easier to interpret than risks: the same population with another loss counts how many of the held-out applicants a
# model misclassifies, before and after they have reacted to it.

# %%
again = pf.run(problem, pf.p_fedavg(**method, deploy="round"), rounds=120, repeats=5, record=pf.Record(risks=False))
errors = pf.Problem(pf.losses.zero_one, kept_apart.population, kept_apart.weights)
share_wrong = partial(decoupled_risk, errors, jnp.asarray(errors.weights))  # of a model, and of the deployed one
mistakes = jax.jit(jax.vmap(jax.vmap(share_wrong)))  # for all repeats and rounds
promised = 1 - mistakes(once.theta, np.zeros_like(once.theta))
kept_once, kept_again = (1 - mistakes(history.theta, history.theta) for history in (once, again))


def wrong_in_the_end(history):
    return mistakes(history.theta, history.theta)[:, -1]


print(pf.compare({"trained once": once, "retrained": again}, wrong_in_the_end))  # same seeds: paired differences

# %% [markdown]
# Where does retraining converge? The stable point is computed exactly, without any sampling.

# %%
stable = np.asarray(pf.stable_point(problem))
settled = 1 - mistakes(stable[None, None], stable[None, None]).item()
print("weights at the stable point:", dict(zip(problem.columns.names, np.round(stable, 2).tolist(), strict=True)))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
names = np.where(train["default"], "defaults", "pays back")
plot_partition(names, hands, ax=left)
left.legend(frameon=False, reverse=True, loc="upper left")
left.set(title="Six banks", xlabel="bank", ylabel="training applicants")
lines = (
    ("trained once, before people react", promised, "#0072B2", "--"),
    ("trained once", kept_once, "#0072B2", "-"),
    ("retrained every round", kept_again, "#D55E00", "-"),
)
for label, values, color, dash in lines:
    right.plot(once.rounds, 100 * np.mean(values, axis=0), dash, color=color, label=label)
right.axhline(100 * settled, color="0.4", linewidth=1, linestyle=":", label="stable point")
right.set(title="Held-out accuracy", xlabel="round", ylabel="accuracy (%)", ylim=(64, 85))
right.legend(frameon=False, loc="lower right")
figure.savefig("bring_your_own_data.png", dpi=120)

# %%
told, kept, won = (100 * float(np.mean(values[:, -1])) for values in (promised, kept_once, kept_again))
print(
    f"On {len(test)} held-out applicants, the model trained once has an accuracy of {told:.1f}% before they react, "
    f"and {kept:.1f}% once they have reacted to it. Retrained as the data move, it reaches {won:.1f}%. The stable "
    f"point, to which retraining converges, has {100 * settled:.1f}%."
)
