"""Batches of a deployment whose people react, or do not."""

import numpy as np


def batches(looks, effect=0.0, explore=1.0, rows=30, seed=0, clients=1, skewed=False):
    """(columns, keywords of `update`) of each batch; models are retrained on the last one."""
    rng = np.random.default_rng(seed)
    model = 2.0
    for t in range(looks):
        chance = explore * rng.normal()
        theta = model + chance
        noise = rng.exponential(size=rows) - 1 if skewed else rng.normal(size=rows)
        income = 1.0 + effect * theta + noise
        columns = {"income": income}
        if clients > 1:
            columns["client"] = [f"c{i % clients}" for i in range(rows)]
        yield columns, {"theta": {"income": theta}, "explored": {"income": chance}, "time": t, "deployment": f"d{t}"}
        model = float(income.mean())


def feed(watch, *args, **options):
    """All of them taken in; what became of each."""
    return [watch.update(columns, **told) for columns, told in batches(*args, **options)]


def as_csv(columns, told):
    """The text of a batch file, with the model in its columns."""
    extra = {"theta_income": told["theta"]["income"], "explore_income": told["explored"]["income"]}
    extra |= {"time": told["time"], "deployment": told["deployment"]}
    names = [*columns, *extra]
    rows = zip(*columns.values(), *([value] * len(columns["income"]) for value in extra.values()), strict=True)
    return "\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n"
