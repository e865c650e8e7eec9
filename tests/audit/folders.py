"""Folders of logs from worlds whose truth is known."""

import numpy as np
import pandas as pd


def squared_folder(folder, eps=(0.3, 0.9, 0.6), T=15, rows=2000, explore=0.3, seed=0, columns=2):
    """Clients N(m_i + eps_i theta, 1), retrained to the mean and explored; returns the true stable point.

    theta = sum_i (m_i + eps_i theta) / N, so it is mean(m) / (1 - mean(eps)).
    """
    rng = np.random.default_rng(seed)
    m = rng.normal(2.0, 1.0, (len(eps), columns))
    names = [f"f{k}" for k in range(columns)]
    theta, models, frames = m.mean(axis=0) + 1.5, [], []
    for t in range(T):
        models.append([f"v{t}", *theta])
        means = []
        for i, e in enumerate(eps):
            z = m[i] + e * theta + rng.normal(size=(rows, columns))
            means.append(z.mean(axis=0))
            who = {"deployment": f"v{t}", "client": f"bank-{i}"}
            frames.append(pd.DataFrame(who | dict(zip(names, z.T, strict=True))))
        theta = np.mean(means, axis=0) + explore * rng.normal(size=columns)
    write(folder, models, names, frames)
    return m.mean(axis=0) / (1 - np.mean(eps))


def lending_folder(folder, T=12, rows=600, strengths=(0.2, 1.0), censored=False, seed=0, explore=0.4):
    """Strategic applicants x - strength theta, logistic labels that stay, two groups, accepted at a score below 0."""
    rng = np.random.default_rng(seed)
    theta, models, frames = np.zeros(3), [], []
    for t in range(T):
        models.append([f"v{t}", *theta])
        for i, s in enumerate(strengths):
            group = rng.random(rows) < 0.4
            x = rng.normal(size=(rows, 2)) + np.where(group[:, None], 0.4, 0.0)
            y = (rng.random(rows) < 1 / (1 + np.exp(-x.sum(axis=1)))).astype(float)
            x = x - s * theta[:2]
            accepted = (x @ theta[:2] + theta[2] <= 0).astype(int)
            seen = np.where(accepted == 1, y, np.nan) if censored else y
            frame = {"deployment": f"v{t}", "client": f"bank-{i}", "debt": x[:, 0], "cards": x[:, 1], "label": seen}
            frames.append(pd.DataFrame(frame | {"accepted": accepted, "group": np.where(group, "young", "old")}))
        theta = np.array([0.8, 0.8, 0.0]) + explore * rng.normal(size=3)
    write(folder, models, ["debt", "cards", "intercept"], frames)
    (folder / "audit.toml").write_text(
        '[model]\nloss = "logistic"\npenalty = 0.1\n[decision]\nthreshold = 0.0\naccept = "below"\nqualified = 0\n'
    )


def applicants_folder(
    folder, toml="", T=10, rows=800, clients=2, react=0.0, drift=0.05, chance=None, drop=(), seed=0, blind=0.0,
    every=False,
):  # fmt: skip
    """Lending without a reaction (react = 0): income drifts, models are drawn by hand, only the accepted have a label.

    Accepted at a score of 0 or more; chance: of being accepted below it (None: none), 1 above. blind: share of labels
    that are missing by chance. every: all have labels. Returns all rows with the outcome that nobody saw.
    """
    rng = np.random.default_rng(seed)
    models, frames = [], []
    for t in range(T):
        theta = np.array([0.6, -0.5, -0.3]) + 0.4 * rng.normal(size=3)
        models.append([f"v{t}", *theta])
        for i in range(clients):
            x = rng.normal(size=(rows, 2)) + np.array([drift * t, 0.2 * i]) + react * theta[:2]
            outcome = (rng.random(rows) < 1 / (1 + np.exp(0.3 - x[:, 0] + 0.8 * x[:, 1]))).astype(float)
            score = x @ theta[:2] + theta[2]
            propensity = np.where(score >= 0, 1.0, 0.0 if chance is None else chance)
            accepted = rng.random(rows) < propensity
            seen = (accepted | every) & (rng.random(rows) >= blind)
            frame = {"deployment": f"v{t}", "client": f"bank-{i}", "income": x[:, 0], "debt": x[:, 1], "score": score}
            frame |= {"label": np.where(seen, outcome, np.nan), "accepted": accepted.astype(int)}
            frames.append(pd.DataFrame(frame | {"propensity": propensity, "outcome": outcome}))
    write(folder, models, ["income", "debt", "intercept"], [frame.drop(columns=["outcome", *drop]) for frame in frames])
    (folder / "audit.toml").write_text(toml)
    return pd.concat(frames)


def write(folder, models, names, frames):
    folder.mkdir(parents=True, exist_ok=True)
    columns = ["deployment", *(f"theta_{name}" for name in names)]
    pd.DataFrame(models, columns=columns).to_csv(folder / "deployments.csv", index=False)
    pd.concat(frames).to_parquet(folder / "data.parquet", index=False)
