"""TOML files, as `performative run` reads them, with one entry that is wrong, missing or unknown."""

from hypothesis import strategies as st

_POPULATION = {
    "name": '"Gaussian"',
    "mean": "[0.0, 0.5, 1.0]",
    "sensitivity": "[0.2, 0.3, 0.4]",
    "scale": "1.0",
}
_ALGORITHM = {
    "recipe": '"p_fedavg"',
    "rate": '{ name = "harmonic", scale = 2, offset = 20 }',
    "local_steps": "2",
    "batch": '{ name = "Fixed", n = 1 }',
    "participation": '{ name = "SchemeOne", k = 2 }',
    "deploy": '"step"',
    "estimator": '{ name = "Prox", inner = { name = "Minibatch" }, mu = 0.1 }',
    "channel": '{ name = "Sparse", k = 1 }',
    "aggregator": '{ name = "Nova", inner = { name = "Mean" } }',
}
_RUN = {
    "rounds": "2",
    "theta": "0.0",
    "seed": "0",
    "repeats": "2",
    "dtype": '"float32"',
    "record": "{ risks = false, every = 1 }",
}
BASES = (
    {
        "problem": {"loss": '"squared"', "weights": "[0.2, 0.3, 0.5]", "domain": '{ name = "Box", lo = -5, hi = 5 }'},
        "problem.population": _POPULATION,
        "algorithm": _ALGORITHM,
        "run": _RUN,
    },
    {
        "problem": {"case": '{ name = "quadratic", beta = 0.05, rows = 20 }'},
        "algorithm": {"recipe": '"pcsgd"', "rate": "0.1", "clip": "1.0", "noise_multiplier": "2.0"},
        "run": {"rounds": "2", "record": "{ risks = false }"},
        "privacy": {"delta": "1e-3", "epsilon": "5.0"},
    },
)
WRONG = (
    "0", "-1", "2", "1.5", "true", '"x"', '""', "[]", "[1, 2]", '["a"]', "[[1], [1, 2]]", "{ a = 1 }", "{ }",
    '{ name = "x" }', "{ name = 3 }", "nan", "inf", "1979-05-27", '"solve"', '"1"',
)  # fmt: skip


def written(tables: dict[str, dict[str, str]]) -> str:
    lines = (f"[{table}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()) for table, entries in tables.items())
    return "\n".join(lines)


@st.composite
def files(draw):
    """FILE(text), which loads and runs it, and the key that was tampered with."""
    tables = {name: dict(entries) for name, entries in draw(st.sampled_from(BASES)).items()}
    table = draw(st.sampled_from(sorted(tables)))
    key = draw(st.sampled_from(sorted(tables[table])))
    how = draw(st.sampled_from(("wrong", "wrong", "wrong", "wrong", "missing", "unknown", "sound")))
    if how == "wrong":
        tables[table][key] = draw(st.sampled_from(WRONG))
    elif how == "missing":
        del tables[table][key]
    elif how == "unknown":
        tables[table][key := f"{key}s"] = "1"
    return f"FILE({written(tables)!r})", table.split(".")[0]
