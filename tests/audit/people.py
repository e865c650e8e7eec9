"""Small folders of logs, written by hand."""

import numpy as np
import pandas as pd

DEPLOYMENTS = "deployment,time,theta_income,theta_age\nv1,1,0.5,0\nv2,2,1.0,0.5\nv3,3,1.5,-1\n"
HEADER = "deployment,client,income,age,label\n"


def write(folder, files):
    """A folder with the given files, texts or tables."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, pd.DataFrame):
            content.to_parquet(path) if path.suffix == ".parquet" else content.to_csv(path, index=False)
        else:
            path.write_text(content, encoding="utf-8")
    return folder


def people(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "deployment": np.array(["v1", "v2", "v3"])[np.arange(n) % 3],
            "client": np.array(["north", "south"])[rng.integers(0, 2, n)],
            "income": rng.normal(40.0, 10.0, n),
            "age": rng.integers(18, 80, n),
            "label": rng.integers(0, 2, n),
        }
    )


def folder_of(tmp_path, rows=None, deployments=DEPLOYMENTS, toml=None, file="data.csv", **more):
    files = {"deployments.csv": deployments, file: people() if rows is None else rows, **more}
    return write(tmp_path, files | ({} if toml is None else {"audit.toml": toml}))
