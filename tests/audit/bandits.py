"""Made-up tables in Open Bandit's layout: a random policy and one that favors some items."""

import numpy as np
import pandas as pd

ITEMS, POSITIONS = 12, 3


def rates(rng):
    """[positions, items] chance of a click, and [levels] what a person adds."""
    return 0.05 + 0.1 * rng.random((POSITIONS, ITEMS)), np.array([0.0, 0.04, 0.08])


def bandit_tables(seed, rows=(4000, 4000), world=0):
    """{"random": ..., "bts": ...}, and the true value of each."""
    click, of_person = rates(np.random.default_rng(world))
    rng = np.random.default_rng([world, seed, 1])
    favor = np.exp(12 * click)
    chances = {"random": np.full((POSITIONS, ITEMS), 1 / ITEMS), "bts": favor / favor.sum(axis=1, keepdims=True)}
    tables, truth = {}, {}
    for (name, pi), n in zip(chances.items(), rows, strict=True):
        place, person = rng.integers(0, POSITIONS, n), rng.integers(0, 3, n)
        item = (rng.random((n, 1)) > pi.cumsum(axis=1)[place, :-1]).sum(axis=1)
        affinity = rng.random((n, ITEMS)).round(3)
        y = rng.random(n) < click[place, item] + of_person[person]
        tables[name] = pd.DataFrame(
            {
                "timestamp": pd.date_range("2019-11-24", periods=n, freq="min", tz="UTC").astype(str),
                "item_id": item, "position": place + 1, "click": y.astype(int), "propensity_score": pi[place, item],
                "user_feature_0": np.array(["a81e", "cef3", "81ce"])[person], "user_feature_1": "2d03",
                **{f"user-item_affinity_{k}": affinity[:, k] for k in range(ITEMS)},
            }
        )  # fmt: skip
        truth[name] = float((pi * click).sum(axis=1).mean() + of_person.mean())
    return tables, truth
