"""The same logs in files and databases: the same sums, whichever engine computes them."""

import os
import shutil
import subprocess

import folders
import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sqlglot

from performative.audit import queries
from performative.audit.collect import totals_query
from performative.audit.deployments import Deployments
from performative.audit.people import People
from performative.audit.queries import draw, sums
from performative.audit.reading import read_logs
from performative.audit.roles import Columns
from performative.audit.schema import Decision, LogError, Settings
from performative.audit.source import open_source

POSTGRES = "/usr/lib/postgresql/15/bin"
MAPPING = '[columns]\nignore = ["propensity"]\n[decision]\nthreshold = 0.0\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two banks, labels of the accepted only, a group, an empty feature here and there."""
    made = tmp_path_factory.mktemp("logs")
    folders.applicants_folder(made, MAPPING, T=5, rows=200, chance=0.3)
    rows = pd.read_parquet(made / "data.parquet")
    rng = np.random.default_rng(3)
    rows["group"] = rng.choice(["old", "young"], len(rows))
    rows.loc[rng.random(len(rows)) < 0.02, "income"] = np.nan
    rows.to_parquet(made / "data.parquet", index=False)
    return made


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """A cluster of its own on a socket in a temporary folder, run by a user who is not root."""
    if not os.path.exists(f"{POSTGRES}/initdb"):
        pytest.skip("no Postgres is installed here")
    pytest.importorskip("psycopg", reason="the driver of Postgres is not installed")
    who = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if who and (shutil.which("runuser") is None or subprocess.run(["id", "postgres"], capture_output=True).returncode):
        pytest.skip("Postgres does not run as root, and there is no other user to run it")
    place = tmp_path_factory.mktemp("pg")
    for parent in (place, *place.parents[:3]):
        if str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    place.chmod(0o777)
    data = place / "data"
    made = subprocess.run(
        [*who, f"{POSTGRES}/initdb", "-D", str(data), "-A", "trust", "-N", "-U", "auditor"],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    options = f"-k {place} -c listen_addresses= -c fsync=off"
    start = [*who, f"{POSTGRES}/pg_ctl", "-D", str(data), "-o", options, "-l", str(place / "log"), "-w", "start"]
    subprocess.run(start, check=True, stdout=subprocess.DEVNULL)
    yield f"postgres://auditor@/postgres?host={place}"
    subprocess.run(
        [*who, f"{POSTGRES}/pg_ctl", "-D", str(data), "-m", "immediate", "stop"], check=True, capture_output=True
    )


def arrow(frame):
    return ibis.memtable(pa.Table.from_pandas(frame, preserve_index=False))


def tables(folder):
    return {
        "decisions": pd.read_parquet(folder / "data.parquet"),
        "deployments": pd.read_csv(folder / "deployments.csv"),
    }


def fill(connection, folder):
    for name, frame in tables(folder).items():
        connection.create_table(name, arrow(frame))
    connection.disconnect()


@pytest.fixture
def mapping(tmp_path):
    (tmp_path / "audit.toml").write_text(MAPPING)
    return tmp_path / "audit.toml"


def check_alike(logs, other):
    """Sums to 1e-9 of a spread; what is kept of rows differs by where they stand."""
    assert set(logs.clients) == set(other.clients) and logs.dropped == other.dropped
    for name, log in logs.clients.items():
        np.testing.assert_array_equal(log.count, other.clients[name].count)
        np.testing.assert_allclose(log.mean, other.clients[name].mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(log.cov, other.clients[name].cov, rtol=1e-9, atol=1e-9)
        assert other.clients[name].sample.shape == log.sample.shape
        # Fewer rows than may be kept: all are there.
        np.testing.assert_allclose(np.nansum(log.sample, axis=1), np.nansum(other.clients[name].sample, axis=1))
    np.testing.assert_array_equal(logs.groups.counts, other.groups.counts)
    assert logs.selection.kind == other.selection.kind and logs.selection.method == other.selection.method
    assert logs.selection.p_value == pytest.approx(other.selection.p_value, rel=1e-6)
    for name, log in logs.outcomes.items():
        np.testing.assert_allclose(log.mean, other.outcomes[name].mean, rtol=1e-9)
        np.testing.assert_allclose(log.cov, other.outcomes[name].cov, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", ["duckdb", "sqlite", "partitions", "table"])
def test_files_and_databases_give_the_same_sums(folder, tmp_path, mapping, kind):
    expected = read_logs(folder)
    if kind == "partitions":
        rows = tables(folder)["decisions"]
        rows.to_parquet(tmp_path / "set", partition_cols=["client", "deployment"])
        (tmp_path / "set" / "deployments.csv").write_text((folder / "deployments.csv").read_text())
        source = tmp_path / "set"
    elif kind == "table":
        connection = ibis.duckdb.connect()
        for name, frame in tables(folder).items():
            connection.create_table(name, arrow(frame))
        source = connection.table("decisions")
    else:
        source = tmp_path / f"logs.{kind}"
        fill(getattr(ibis, kind).connect(source), folder)
    check_alike(expected, read_logs(source, map=mapping))


def test_postgres_gives_the_same_sums(folder, postgres, mapping):
    connection = ibis.connect(postgres)
    for name in tables(folder):
        connection.drop_table(name, force=True)
    fill(connection, folder)
    check_alike(read_logs(folder), read_logs(postgres, map=mapping))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Spark warns of pandas 3, of sockets and of itself
def test_spark_gives_the_same_sums(folder, mapping):
    if shutil.which("java") is None:
        pytest.skip("Spark takes a JVM, and there is no java here")
    pyspark = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    session = pyspark.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    connection = ibis.pyspark.connect(session)
    for name, frame in tables(folder).items():
        session.createDataFrame(frame).createOrReplaceTempView(name)
    check_alike(read_logs(folder), read_logs(connection.table("decisions"), map=mapping))
    session.stop()


def far_rows(n=3000, seed=4):
    """1e6 and noise of 1, in two clients that lie a million apart: sums of squares about 0 would lose 12 digits."""
    rng = np.random.default_rng(seed)
    who = rng.integers(0, 2, n)
    x = 1e6 * (1 + who) + rng.standard_normal(n)
    return pd.DataFrame({"deployment": np.where(np.arange(n) % 2, "a", "b"), "client": np.where(who, "n", "s"), "x": x})


@pytest.mark.parametrize("kind", ["parquet", "sqlite", "postgres"])
def test_columns_far_from_zero_lose_nothing(tmp_path, kind, request):
    rows = far_rows()
    listed = pd.DataFrame({"deployment": ["a", "b"], "theta_x": [0.0, 1.0]})
    if kind == "parquet":
        rows.to_parquet(tmp_path / "data.parquet")
        listed.to_csv(tmp_path / "deployments.csv", index=False)
        source = tmp_path
    else:
        url = request.getfixturevalue("postgres") if kind == "postgres" else None
        connection = ibis.connect(url) if url else ibis.sqlite.connect(tmp_path / "a.sqlite")
        for name, frame in (("data", rows), ("deployments", listed)):
            connection.drop_table(name, force=True)
            connection.create_table(name, arrow(frame))
        for name in ("decisions",) if url else ():
            connection.drop_table(name, force=True)
        connection.disconnect()
        source = url or tmp_path / "a.sqlite"
    logs = read_logs(source)
    for name, log in logs.clients.items():
        offset = 2e6 if name == "n" else 1e6
        for t, version in enumerate("ab"):
            mine = rows[(rows.client == name) & (rows.deployment == version)].x.to_numpy() - offset
            assert log.mean[t, 0] - offset == pytest.approx(mine.mean(), abs=1e-9)
            assert log.cov[t, 0, 0] == pytest.approx(mine.var(ddof=1), rel=1e-10)


@pytest.mark.parametrize("dialect", ["snowflake", "bigquery", "postgres", "sqlite"])
def test_the_plan_compiles_for_warehouses(dialect):
    """Snowflake and BigQuery are not asked; that their SQL is well formed is."""
    kinds = {"model": "string", "bank": "string", "x": "float64", "z": "int64", "y": "float64", "s": "float64"}
    table = ibis.table({**kinds, "ok": "int64"}, name="decisions")
    typed = table.mutate(z=table.z.cast("float64"), ok=table.ok.cast("float64"))
    columns = Columns(("x", "z"), "model", "bank", "y", "s", "ok", None)
    models = Deployments(("a", "b"), np.arange(2.0), np.ones((2, 2)), ("x", "z"), "order", (), ())
    people = People(typed, columns, models, Settings(decision=Decision(threshold=0.5)))
    fit = people.rows.filter(people.rows.fit)
    cells = {"client": ["n"], "deployment": ["a"]}
    asked = [
        totals_query(people),
        sums(fit, ["client", "deployment", "stratum", "has"], people.measured, np.zeros(3)),
        draw(fit, None, 0, cells, np.array([5.0]), np.array([5.0]), 5, people.measured),
    ]
    for query in asked:
        text = ibis.to_sql(query, dialect=dialect)
        assert sqlglot.parse_one(str(text), dialect=dialect).find(sqlglot.exp.Select) is not None


def test_what_is_no_source_is_refused_with_a_remedy(tmp_path, folder):
    for where, message in [
        (tmp_path / "none", "there is no such folder"),
        ("postgres://nobody:secret@localhost:1/none", "no connection"),
    ]:
        with pytest.raises(LogError, match=message) as found:
            open_source(where)
        assert "secret" not in str(found.value)
    (tmp_path / "text.txt").write_text("x")
    with pytest.raises(LogError, match="this is a file, not a folder"):
        open_source(tmp_path / "text.txt")
    empty = ibis.sqlite.connect(tmp_path / "a.sqlite")
    empty.create_table("decision", schema=ibis.schema({"x": "float64"}))
    empty.disconnect()
    with pytest.raises(LogError, match=r"which table contains the rows.*\[source\] table = .*decision"):
        open_source(tmp_path / "a.sqlite")
    with pytest.raises(LogError, match="no such file; it maps"):
        open_source(folder, map=tmp_path / "map.toml")


def test_rows_stay_where_they_are(folder, monkeypatch):
    """What leaves the engine is sums, and no more rows than may be kept."""
    sizes = []

    def counted(table):
        answer = queries.fetch(table)
        sizes.append(len(next(iter(answer.values()))))
        return answer

    for module in ("collect", "draws", "typed"):
        monkeypatch.setattr(f"performative.audit.{module}.fetch", counted)
    read_logs(folder, sample=5)
    # 10 cells, labeled or not, of 5 rows (with six standard deviations and 10 to spare), and 10 of groups.
    assert sizes and max(sizes) <= 10 * 2 * (5 + 6 * np.sqrt(5) + 10) * 4 + 100
