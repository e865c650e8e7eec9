# %% [markdown]
# # A PyTorch learner for a black-box environment
#
# An environment of `pf.suite` takes models and returns the data they induce, so any library can learn from it. Here
# PyTorch fits a logistic score to each deployment's rows. Run it as a script; if PyTorch is not installed, it says so
# and stops.

# %%
import importlib.util

import numpy as np

import performative as pf


# %%
def learn(env, seed, fit):
    """Retrain after every deployment, while the budget covers one more. `fit(theta, rows)` is the learner."""
    theta, rows = env.start, env.reset(seed)
    while not env.left.lacks(pf.suite.Budget(1, env.rows * env.clients, 1)):
        theta = fit(theta, rows)
        rows = env.deploy(theta)
    return theta


def torch_fit(theta, rows, steps=10, rate=0.3, penalty=0.04):
    """A few steps of SGD on the logistic loss with L2; the last column is an unpenalized intercept."""
    import torch

    x, y = torch.as_tensor(rows["x"]).flatten(0, 1), torch.as_tensor(rows["y"]).flatten().double()
    model = torch.nn.Parameter(torch.tensor(theta))  # a copy: the steps below are in place
    optimizer = torch.optim.SGD([model], lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ model, y)
        (loss + penalty / 2 * model[:-1].square().sum()).backward()
        optimizer.step()
    return model.detach().numpy()


# %%
if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("skipped: PyTorch is not installed (pip install torch).")
    else:
        env = pf.suite.make("credit-strategic-v1")
        scores = [env.score(learn(env, seed, torch_fit)) for seed in range(4)]
        print(f"{env.id}: score {np.mean(scores):.3f}, the stable point {env.score(env.stable.theta):.3f}")
