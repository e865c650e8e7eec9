# %% [markdown]
# # Bring your own data
#
# From a plain table, one row a person, to clients, to an ordinary federation, and to one whose people react to the
# model. Run it as a script (`python examples/bring_your_own_data.py`, half a minute, offline), or open it as a
# notebook: editors and `jupytext --to notebook` know the `# %%` cells. It writes `bring_your_own_data.png`.

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
# Loan applicants, made up here; yours comes from `pandas.read_csv`. `pf.data.credit()` and others are real ones. All
# that matters: columns of numbers, and a label of 0 and 1.

# %%
rng = np.random.default_rng(0)
people = 3000
table = pd.DataFrame(
    {
        "utilization": rng.normal(45, 20, people),  # per cent of the credit lines in use
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
# If your table has a column that says whose row it is, use that. Here six banks get their applicants by
# `pf.partition.dirichlet`: with a small alpha, banks differ in size and in how many of their people default. A quarter
# of the people is kept apart; what scales the features must come from the others alone.

# %%
parts = pf.partition.dirichlet(table["default"], clients=6, alpha=0.7, seed=3, least=80)
for bank, rows in enumerate(parts):
    table.loc[rows, "bank"] = f"bank {bank}"
train, test = table[: 3 * people // 4].copy(), table[3 * people // 4 :].copy()
center, spread = train[features].mean(), train[features].std()
train[features], test[features] = ((rows[features] - center) / spread for rows in (train, test))

# %% [markdown]
# `pf.partition.tables` makes the arrays `[clients, rows, ...]` that populations take. All clients have as many rows as
# the largest; the rest is padding, and `count` says how many are real, so that padding is never drawn.

# %%
hands = [np.flatnonzero(train["bank"] == f"bank {bank}") for bank in range(6)]
x = np.column_stack([train[features], np.ones(len(train))])  # the last column is the intercept
x, y, count = pf.partition.tables(x, train["default"], hands)
print(f"x {x.shape}, y {y.shape}, count {count.tolist()}: {1 - count.sum() / y.size:.0%} of the rows are padding")

# %% [markdown]
# ## The ordinary federation
#
# `Static` data stay as they are, whatever is deployed. Weights in proportion to rows make the goal the same as if all
# rows lay in one place, so scikit-learn on the whole table is what to hold the result against.

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
    participation=pf.SchemeTwo(3),  # three banks a round, whichever
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
    """How many of the applicants kept apart a linear model is right about, if they stay as they are."""
    return np.mean((test[features] @ theta[:-1] + theta[-1] > 0) == test["default"])


federated, together = once.final.mean(axis=0), np.append(pooled.coef_, pooled.intercept_)
print(f"right about {share_right(federated):.1%} of people kept apart; pooled data give {share_right(together):.1%}")

# %% [markdown]
# ## People react
#
# A score that decides about loans is known soon. Applicants pay cards off and close lines before they apply, which
# does not make them any safer: their features move by `strength` times the weight that the model gives them (in
# standard deviations), and their labels stay. `Problem.from_frame` takes the table as it is, with a column for the
# client. **`strength` is an assumption**, which no table of the past can tell; vary it, or measure it
# (`performative audit`). Here people of some banks are better advised than those of others.

# %%
strength = {f"bank {i}": 0.4 + 0.08 * i for i in range(6)}
asked = dict(client="bank", label="default", strategic=["utilization", "open_lines"], strength=strength)
problem, kept_apart = (pf.Problem.from_frame(rows, **asked, standardize=False) for rows in (train, test))

# %% [markdown]
# `p_fedavg` deploys the model of every round, so that the next round learns from people who have reacted to it. Risks
# are hard to picture, shares of people are not: the same population with another loss counts how many of the applicants
# kept apart a model gets wrong, before they know it and after they have reacted to it.

# %%
again = pf.run(problem, pf.p_fedavg(**method, deploy="round"), rounds=120, repeats=5, record=pf.Record(risks=False))
errors = pf.Problem(pf.losses.zero_one, kept_apart.population, kept_apart.weights)
share_wrong = partial(decoupled_risk, errors, jnp.asarray(errors.weights))  # of a model, and the one that was deployed
mistakes = jax.jit(jax.vmap(jax.vmap(share_wrong)))  # for all repeats and rounds
promised = 1 - mistakes(once.theta, np.zeros_like(once.theta))
kept_once, kept_again = (1 - mistakes(history.theta, history.theta) for history in (once, again))


def wrong_in_the_end(history):
    return mistakes(history.theta, history.theta)[:, -1]


print(pf.compare({"trained once": once, "retrained": again}, wrong_in_the_end))  # same seeds: paired differences

# %% [markdown]
# Where does retraining lead in the end? The stable point is found exactly, without any sampling.

# %%
stable = np.asarray(pf.stable_point(problem))
settled = 1 - mistakes(stable[None, None], stable[None, None]).item()
print("weights at the stable point:", dict(zip(problem.columns.names, np.round(stable, 2).tolist(), strict=True)))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
names = np.where(train["default"], "defaults", "pays back")
plot_partition(names, hands, ax=left)
left.legend(frameon=False, reverse=True, loc="upper left")
left.set(title="Six banks", xlabel="bank", ylabel="applicants to learn from")
lines = (
    ("trained once, before people react", promised, "#0072B2", "--"),
    ("trained once", kept_once, "#0072B2", "-"),
    ("retrained every round", kept_again, "#D55E00", "-"),
)
for label, values, color, dash in lines:
    right.plot(once.rounds, 100 * np.mean(values, axis=0), dash, color=color, label=label)
right.axhline(100 * settled, color="0.4", linewidth=1, linestyle=":", label="stable point")
right.set(title="Applicants judged rightly", xlabel="round", ylabel="per cent of those kept apart", ylim=(64, 85))
right.legend(frameon=False, loc="lower right")
figure.savefig("bring_your_own_data.png", dpi=120)

# %%
told, kept, won = (100 * float(np.mean(values[:, -1])) for values in (promised, kept_once, kept_again))
print(
    f"Of {len(test)} applicants kept apart, the model that was trained once is right about {told:.1f} % on paper, and "
    f"about {kept:.1f} % once they have reacted to it. Retrained as the data move, it is right about {won:.1f} %. The "
    f"stable point, where retraining leads, gives {100 * settled:.1f} %."
)
