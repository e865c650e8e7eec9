"""Tables of any kind in, tables of any kind out."""

import decimal

import duckdb
import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import performative as pf
from performative._base.frames_out import latex_table
from performative.tables.any_table import as_pandas

CONNECTION = duckdb.connect()


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    bank = np.resize(["a", "b", "c"], 60)
    return pd.DataFrame({"debt": x[:, 0], "cards": x[:, 1], "bank": bank, "default": (x[:, 0] > 0).astype(int)})


def as_polars(frame):
    return pytest.importorskip("polars", reason="polars is not installed").from_pandas(frame)


def as_lazy_polars(frame):
    return as_polars(frame).lazy()


def as_arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


def as_duckdb(frame):
    return CONNECTION.from_arrow(as_arrow(frame))


def as_ibis(frame):
    return ibis.memtable(as_arrow(frame))


def as_dataset(frame):
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    return datasets.Dataset.from_pandas(frame, preserve_index=False)


@pytest.mark.parametrize("kind", [as_polars, as_lazy_polars, as_arrow, as_duckdb, as_ibis, as_dataset])
def test_the_problem_is_that_of_the_same_pandas_table(people, kind):
    ours = pf.Problem.from_frame(kind(people), client="bank", label="default", strength=0.5)
    same = pf.Problem.from_frame(people, client="bank", label="default", strength=0.5)
    assert np.array_equal(ours.population.x, same.population.x) and ours.columns == same.columns


def test_one_table_a_client(people):
    parts = {name: as_arrow(mine.drop(columns="bank")) for name, mine in people.groupby("bank")}
    ours = pf.Problem.from_frame(parts, client="bank", label="default")
    same = pf.Problem.from_frame(people, client="bank", label="default")
    np.testing.assert_allclose(ours.population.x, same.population.x, rtol=1e-6)
    assert ours.columns.clients == ("a", "b", "c")
    with pytest.raises(ValueError, match="need client="):
        as_pandas(parts)
    with pytest.raises(ValueError, match=r"the table of 'a' already has a column client='debt'"):
        as_pandas(parts, client="debt")
    with pytest.raises(ValueError, match=r"the table of 'b' has no rows; leave it out"):
        as_pandas(parts | {"b": parts["b"].slice(0, 0)}, client="bank")


def test_partitions_of_flower_datasets(people):
    partitioners = pytest.importorskip("flwr_datasets.partitioner", reason="Flower Datasets is not installed")
    split = partitioners.IidPartitioner(num_partitions=3)
    split.dataset = as_dataset(people.drop(columns="bank"))
    problem = pf.Problem.from_frame(
        {client: split.load_partition(client) for client in range(3)}, client="client", label="default"
    )
    assert problem.columns.clients == ("0", "1", "2")
    assert int(np.sum(problem.population.count)) == len(people)


def test_a_single_bank_needs_no_column(people):
    problem = pf.Problem.from_frame(people.drop(columns="bank"), label="default")
    assert problem.clients == 1 and problem.columns.clients == ("all",)


@pytest.mark.parametrize("wrong", [[[1, 2]], "people.csv", pd.Series([1.0]), {}, {"a": 3}])
def test_what_is_no_table_is_named(wrong):
    with pytest.raises(ValueError, match="frame must be a table with one row per person"):
        pf.Problem.from_frame(wrong, client="bank", label="default")


def test_words_and_gaps_are_named_with_the_remedy(people):
    with pytest.raises(ValueError, match=r"encode or drop the columns \['city'\]"):
        pf.Problem.from_frame(people.assign(city="x"), client="bank", label="default")
    with pytest.raises(ValueError, match="column 'debt'"):
        pf.Problem.from_frame(people.assign(debt=np.nan), client="bank", label="default")


@pytest.fixture(scope="module")
def runs():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([0.0, 1.0], 0.5, 1.0))
    return pf.sweep(problem, pf.p_fedavg(0.1), over={"rate": [0.1, 0.2]}, rounds=4, theta=0.0, repeats=3)


def test_a_history_is_tidy():
    problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian([0.0, 1.0], 0.5, 1.0))
    history = pf.run(problem, pf.p_fedavg(0.1), rounds=4, theta=0.0, repeats=3)
    frame = history.to_frame()
    assert list(frame.columns[:2]) == ["repeat", "round"] and len(frame) == 3 * 5
    one = frame[(frame["repeat"] == 2) & (frame["round"] == 4)]
    assert one["distance_to_stable"].item() == history["distance_to_stable"][2, -1]
    assert one["performative_risk"].item() == history["performative_risk"][2, -1]
    pytest.importorskip("polars", reason="polars is not installed")
    assert history.to_frame("polars").to_pandas().equals(frame)
    with pytest.raises(ValueError, match="kind must be"):
        history.to_frame("excel")


def test_a_sweep_is_tidy_and_prints(runs):
    frame = runs.to_frame()
    assert list(frame.columns[:4]) == ["setting", "rate", "repeat", "round"] and len(frame) == 2 * 3 * 5
    text = runs.to_latex("distance_to_stable", "distance_to_optimal")
    assert text.count(r"\\") == 3 and r"distance\_to\_stable" in text and r"\pm" in text
    final = runs.histories[1]["distance_to_stable"][:, -1]
    assert rf"0.2 & ${final.mean():.4g} \pm" in text
    assert r"\toprule" in runs.histories[0].to_latex()


def test_clients_with_other_columns_are_named():
    parts = {"north": pd.DataFrame({"a": [1.0], "y": [0]}), "south": pd.DataFrame({"a": [1.0], "b": [2.0], "y": [1]})}
    with pytest.raises(ValueError, match="of those of 'north' and 'south', only one has column 'b'"):
        as_pandas(parts, "frame", "bank")


def test_a_lone_dollar_sign_is_text_in_latex():
    table = latex_table(["a_b & %"], [["$5"], ["$1 \\pm 2$"], ["$1 to $2"]])
    assert r"a\_b \& \%" in table and "\\$5 \\\\" in table and "\n$1 \\pm 2$ \\\\" in table
    assert "\\$1 to \\$2" in table


def test_exact_decimals_and_nullable_types_are_numbers(people):
    usual = pf.Problem.from_frame(people, client="bank", label="default", strength=1.0)
    first = next(name for name in people.columns if people[name].dtype.kind == "f")
    exact = people.assign(**{first: [decimal.Decimal(repr(float(value))) for value in people[first]]})
    for frame in (exact, people.convert_dtypes(dtype_backend="pyarrow")):
        made = pf.Problem.from_frame(frame, client="bank", label="default", strength=1.0)
        np.testing.assert_allclose(np.asarray(made.population.x), np.asarray(usual.population.x))
    with pytest.raises(ValueError, match="frame: column 'emb' contains lists"):
        pf.Problem.from_frame(people.assign(emb=[[1]] * len(people)), client="bank", label="default", strength=1.0)
    levels = people.set_axis(pd.MultiIndex.from_product([["a"], people.columns]), axis=1)
    with pytest.raises(ValueError, match="frame: columns have 2 levels of names"):
        pf.Problem.from_frame(levels, client="bank", label="default", strength=1.0)
