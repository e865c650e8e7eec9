# %% [markdown]
# # A learner using the Gymnasium interface
#
# `pf.suite.gymnasium_env` wraps an environment as a `gymnasium.Env`: an action is a model, and an observation is the
# data it induces. Run it as a script; if Gymnasium is not installed, it says so and stops.

# %%
import importlib.util

import performative as pf


# %%
def play(made, theta, seed, rate=0.3):
    """Gradient steps on the squared loss until the budget is spent; the last model and the sum of rewards."""
    seen, _ = made.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        theta = theta - rate * (theta - seen["z"].mean())
        seen, reward, _, over, _ = made.step(theta)
        total += reward
    return theta, total


# %%
if __name__ == "__main__":
    if importlib.util.find_spec("gymnasium") is None:
        print('skipped: Gymnasium is not installed (pip install "performative[suite]").')
    else:
        env = pf.suite.make("gaussian-federation-v1")
        theta, total = play(pf.suite.gymnasium_env(env), env.start, seed=0)
        gained = env.score(theta) - env.score(env.start)
        print(f"{env.id}: score {env.score(theta):.3f}; rewards sum to {total:.3f}; the score rose by {gained:.3f}")
