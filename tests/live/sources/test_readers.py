"""Rows of exactly the version asked for, in one order; nothing is filled, and what is left out is counted."""

import datetime
import decimal
import os
import sqlite3

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from performative.live.sources import readers
from performative.live.sources.readers import Folder, Function, Query, Reader
from performative.live.sources.rows import NEWER, OLDER, UNFINISHED, RowsError

HEADER = "model_version,age,income,label\n"


def folder(path, **options):
    return Folder(path, ["age", "income"], **{"label": "label", **options})


def write_csv(path, *rows, header=HEADER):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(header + "".join(f"{','.join(map(str, row))}\n" for row in rows))


def write_parquet(path, *rows, names=("model_version", "age", "income", "label")):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}), path)


def ages(rows):
    return rows.x[:, 0].tolist()


@pytest.fixture
def opened(monkeypatch):
    """Names of the files that were read."""
    names = []
    for kind in ("_read_csv", "_read_parquet"):
        inner = getattr(readers, kind)

        def read(path, columns, inner=inner):
            names.append(path.name)
            return inner(path, columns)

        monkeypatch.setattr(readers, kind, read)
    return names


class TestFolder:
    def test_two_versions_interleaved_over_both_kinds_of_file(self, tmp_path):
        write_csv(tmp_path / "b.csv", (2, 30, 1.5, 1), (1, 31, 1.5, 0), (2, 32, 2.5, 0))
        write_parquet(tmp_path / "a.parquet", (1, 20.0, 0.5, 1), (2, 21.0, 0.25, 1), (3, 22.0, 0.5, 0))
        write_csv(tmp_path / "day=1" / "c.csv", (2, 40, 7, 1))
        reader = folder(tmp_path)
        assert isinstance(reader, Reader)
        rows = reader.read(2)
        np.testing.assert_array_equal(rows.x, [[21, 0.25], [30, 1.5], [32, 2.5], [40, 7]])
        np.testing.assert_array_equal(rows.y, [1, 1, 0, 1])
        assert rows.version == 2 and rows.skipped == {OLDER: 2, NEWER: 1}
        assert ages(reader.read(1)) == [20, 31] and ages(reader.read(3)) == [22] and ages(reader.read(9)) == []
        assert rows.x.dtype == rows.y.dtype == np.float64

    def test_numbers_keep_every_bit(self, tmp_path):
        values = np.random.default_rng(0).standard_normal((500, 2)) * 10.0 ** np.arange(-250, 250)[:, None]
        write_csv(tmp_path / "a.csv", *((1, repr(float(a)), repr(float(b)), 0) for a, b in values))
        write_csv(tmp_path / "b.csv", *((1, repr(float(a)), repr(float(b)), 0) for a, b in values), (1, "x", 1, 0))
        rows = folder(tmp_path).read(1)
        np.testing.assert_array_equal(rows.x, np.concatenate([values, values]))

    def test_no_label(self, tmp_path):
        write_csv(tmp_path / "a.csv", (1, 3, 4, ""))
        assert folder(tmp_path, label=None).read(1).y is None

    def test_rows_with_gaps_are_skipped_and_counted(self, tmp_path):
        write_csv(
            tmp_path / "a.csv",
            (1, 30, 1, 0), (1, "", 1, 0), (1, "old", 1, 0), (1, 31, "inf", 0), (1, 32, "NA", ""), (1, 33, 1, ""),
            (0, "", "", ""),
        )  # fmt: skip
        write_parquet(tmp_path / "b.parquet", (1, 34.0, None, 1.0), (1, 35.0, np.nan, 1.0), (1, 36.0, 2.0, None))
        rows = folder(tmp_path).read(1)
        assert ages(rows) == [30]
        assert rows.skipped == {
            "no finite number in column 'age'": 2,
            "no finite number in column 'income'": 4,
            "no finite number in column 'label'": 2,
            OLDER: 1,
        }

    @pytest.mark.parametrize("bad", ["", "v1", "1.5", "-1", "nan", "1e300"])
    def test_a_row_without_a_version_is_refused(self, tmp_path, bad):
        write_csv(tmp_path / "a.csv", (1, 30, 1, 0), (bad, 31, 1, 0))
        with pytest.raises(RowsError, match=r"a\.csv: row 2 has .*1 of 2 rows have no version"):
            folder(tmp_path).read(1)

    def test_a_version_with_gaps_in_parquet_is_refused(self, tmp_path):
        write_parquet(tmp_path / "a.parquet", (1, 30, 1, 0), (None, 31, 1, 0))
        with pytest.raises(RowsError, match="row 2 has 'nan'"):
            folder(tmp_path).read(1)

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_a_file_without_the_version_column(self, tmp_path, kind):
        if kind == "csv":
            write_csv(tmp_path / "a.csv", (30, 1, 0), header="age,income,label\n")
        else:
            write_parquet(tmp_path / "a.parquet", (30, 1, 0), names=("age", "income", "label"))
        message = r"there is no column 'model_version'; the columns are 'age', 'income', 'label'"
        with pytest.raises(RowsError, match=message):
            folder(tmp_path).read(1)

    def test_a_column_twice(self, tmp_path):
        (tmp_path / "a.csv").write_text("model_version,age,age,income,label\n1,2,3,4,0\n")
        with pytest.raises(RowsError, match="column 'age' occurs twice"):
            folder(tmp_path).read(1)

    def test_what_is_still_being_written(self, tmp_path):
        write_csv(tmp_path / "a.csv", (1, 30, 1, 0))
        for name in (".b.csv", "_c.csv", "d.csv.part", "e.tmp", ".hidden/f.csv", "_temporary/g.csv"):
            write_csv(tmp_path / name, ("no version", 31, 1, 0))
        (tmp_path / "h.csv").touch()
        (tmp_path / "i.csv").write_text("model_version,age")
        (tmp_path / "j.csv").write_text(HEADER + "1,40,1,0\n1,41,1,1")  # a last 1 of 1.75?
        write_parquet(tmp_path / "k.parquet", (1, 50, 1, 0))
        whole = (tmp_path / "k.parquet").read_bytes()
        (tmp_path / "k.parquet").write_bytes(whole[:-20])
        reader = folder(tmp_path)
        rows = reader.read(1)
        assert ages(rows) == [30, 40] and rows.skipped == {UNFINISHED: 3}
        assert reader.read(2).skipped == {UNFINISHED: 3, OLDER: 2}
        with (tmp_path / "j.csv").open("a") as file:
            file.write(".75\n1,42,1,0\n")
        (tmp_path / "k.parquet").write_bytes(whole)
        rows = reader.read(1)
        assert ages(rows) == [30, 40, 41, 42, 50] and rows.skipped == {UNFINISHED: 1}
        assert rows.y.tolist() == [0, 0, 1.75, 0, 0]

    def test_only_changed_files_are_read_again(self, tmp_path, opened, monkeypatch):
        monkeypatch.setattr(readers, "_TICK_NS", -1)
        write_csv(tmp_path / "a.csv", (1, 30, 1, 0), (1, 31, 1, 0))
        write_csv(tmp_path / "b.csv", (1, 40, 1, 0), (2, 41, 1, 0))
        reader = folder(tmp_path)
        for _ in range(3):
            assert ages(reader.read(1)) == [30, 31, 40]
        assert opened == ["a.csv", "b.csv"]
        # Under the next version only the file that holds rows of it is read; the old rows are let go.
        assert ages(reader.read(2)) == [41] and reader.read(2).skipped == {OLDER: 3}
        assert opened == ["a.csv", "b.csv", "b.csv"]
        assert sum(len(seen.part.values) for seen in reader._seen.values()) == 1
        # A row of the older version that arrives late changes a file, and is counted, not returned.
        write_csv(tmp_path / "a.csv", (1, 30, 1, 0), (1, 31, 1, 0), (1, 32, 1, 0), (2, 33, 1, 0))
        assert ages(reader.read(2)) == [33, 41] and reader.read(2).skipped == {OLDER: 4}
        assert opened == ["a.csv", "b.csv", "b.csv", "a.csv"]
        (tmp_path / "b.csv").unlink()
        assert ages(reader.read(2)) == [33] and set(reader._seen) == {"a.csv"}

    def test_a_change_that_the_clock_does_not_show(self, tmp_path):
        path = tmp_path / "a.csv"
        write_csv(path, (1, 30, 1, 0))
        reader, stat = folder(tmp_path), path.stat()
        assert ages(reader.read(1)) == [30]
        write_csv(path, (1, 31, 1, 0))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert ages(reader.read(1)) == [31]

    def test_a_file_of_the_same_size_put_in_its_place(self, tmp_path):
        write_csv(tmp_path / "a.csv", (1, 30, 1, 0))
        reader, stat = folder(tmp_path), (tmp_path / "a.csv").stat()
        assert ages(reader.read(1)) == [30]
        write_csv(tmp_path / ".new", (1, 31, 1, 0))
        os.utime(tmp_path / ".new", ns=(stat.st_atime_ns, stat.st_mtime_ns))
        os.replace(tmp_path / ".new", tmp_path / "a.csv")
        assert ages(reader.read(1)) == [31]

    def test_pattern(self, tmp_path):
        write_csv(tmp_path / "rows-1.csv", (1, 30, 1, 0))
        write_csv(tmp_path / "people.csv", ("Ann",), header="name\n")
        assert ages(folder(tmp_path, pattern="rows-*.csv").read(1)) == [30]
        with pytest.raises(RowsError, match=r"people\.csv: there is no column"):
            folder(tmp_path).read(1)

    @pytest.mark.parametrize("kind", ["numbers", "dates", "times"])
    def test_order_by_a_column(self, tmp_path, kind):
        when = {"numbers": ["10", "9", "100"], "dates": ["2024-02-01", "2023-12-31", "2024-11-05"]}
        names = ("model_version", "age", "income", "label", "when")
        if kind == "times":
            times = [datetime.datetime.fromisoformat(text) for text in when["dates"]]
            for i, time in enumerate(times):
                write_parquet(tmp_path / f"{i}.parquet", (1, i, 1, 0, time), (1, 9, 1, 0, None), names=names)
        else:
            for i, text in enumerate(when[kind]):
                write_csv(tmp_path / f"{i}.csv", (1, i, 1, 0, text), (1, 9, 1, 0, ""), header=",".join(names) + "\n")
        rows = folder(tmp_path, order_by="when").read(1)
        assert ages(rows) == [1, 0, 2] and rows.skipped == {"nothing in column 'when'": 3}
        write_csv(tmp_path / "9.csv", (1, 5, 1, 0, "soon"), header=",".join(names) + "\n")
        if kind != "dates":
            with pytest.raises(RowsError, match="no common order"):
                folder(tmp_path, order_by="when").read(1)

    def test_equal_in_order_keep_their_places(self, tmp_path):
        write_csv(tmp_path / "b.csv", (1, 7, 1, 0), (1, 8, 0, 0))
        write_csv(tmp_path / "a.csv", (1, 5, 1, 0), (1, 6, 1, 0))
        assert ages(folder(tmp_path, order_by="income").read(1)) == [8, 5, 6, 7]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.csv", HEADER.encode() + b"1,2\n", "cannot be read as CSV"),
            ("a.csv", b"\xff\xfe1\n", "cannot be read as CSV"),
            ("a.csv", b"model_version;age;income;label\n1;2;3;0\n", "'model_version;age;income;label'"),
            ("a.parquet", b"PAR1" + b"x" * 20 + b"PAR1", "cannot be read as Parquet"),
        ],
    )
    def test_broken_files_are_named(self, tmp_path, name, content, message):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RowsError, match=rf"{name}.*{message}"):
            folder(tmp_path).read(1)

    def test_quotes_and_a_mark_at_the_start(self, tmp_path):
        text = '\ufeff"model_version","age","note","income","label"\r\n"1","30","two\nlines, ""x""",2,0\r\n'
        (tmp_path / "a.csv").write_text(text, newline="")
        assert ages(folder(tmp_path).read(1)) == [30]

    def test_refused(self, tmp_path):
        with pytest.raises(RowsError, match="is not a folder"):
            folder(tmp_path / "nowhere").read(1)
        for features, options, message in [
            ("age", {}, "list of one column name or more"),
            ([], {}, "list of one column name or more"),
            (["age"], {"label": "age"}, "'age' is named twice"),
            (["age", "model_version"], {}, "'model_version' is named twice"),
            (["age"], {"version": ""}, "names of columns"),
        ]:
            with pytest.raises(ValueError, match=message):
                Folder(tmp_path, features, **options)


ROWS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["1.5", "-2", "", "x", "nan"])), max_size=12)
FILES = st.dictionaries(st.sampled_from(["a.csv", "b.csv", "b/c.csv", "d.parquet", "e.parquet"]), ROWS, max_size=5)


def write_some(path, rows):
    if path.suffix == ".csv":
        write_csv(path, *rows, header="model_version,age,income\n")
    else:
        write_parquet(path, *rows, names=("model_version", "age", "income"))


@settings(max_examples=60, deadline=None)
@given(states=st.lists(FILES, min_size=1, max_size=4), asked=st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_any_interleaving_gives_exactly_the_rows_of_the_version(tmp_path_factory, states, asked):
    """Files come, change, stay and go between reads of versions in any order; the truth is a loop over all rows."""
    path = tmp_path_factory.mktemp("rows")
    reader, serial, before, there = folder(path, label=None), 0, {}, {}
    for files in states:
        for name in set(before) - set(files):
            (path / name).unlink()
            del there[name]
        for name in [name for name in files if files[name] != before.get(name)]:
            there[name] = [(version, str(serial + i), income) for i, (version, income) in enumerate(files[name])]
            serial += len(there[name]) + 1
            write_some(path / name, there[name])
            os.utime(path / name, (serial, serial))  # long ago, so that what was read may be kept
        before, truth = files, [row for name in sorted(files) for row in there[name]]
        for version in asked:
            got = reader.read(version)
            mine = [[float(age), float(income)] for v, age, income in truth if v == version and income in ("1.5", "-2")]
            assert got.x.tolist() == mine
            assert len(got) + sum(got.skipped.values()) == len(truth)
            assert got.skipped.get(OLDER, 0) == sum(v < version for v, _, _ in truth)
            assert got.skipped.get(NEWER, 0) == sum(v > version for v, _, _ in truth)
            assert sum(len(seen.part.values) for seen in reader._seen.values()) == len(mine)


SQL = "SELECT model_version, age, income, label FROM decisions WHERE model_version = :version ORDER BY id"


class TestQuery:
    @pytest.fixture
    def url(self, tmp_path):
        pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
        path = tmp_path / "people.db"
        base = sqlite3.connect(path)
        base.execute("CREATE TABLE decisions (id INTEGER PRIMARY KEY, model_version INTEGER, age, income, label)")
        rows = [(9, 2, 30, 1.5, 1), (3, 1, 31, 1, 0), (4, 2, "32", 0.1, 0), (5, 2, None, 1, 0), (6, None, 1, 1, 1)]
        base.executemany("INSERT INTO decisions VALUES (?, ?, ?, ?, ?)", rows)
        base.commit()
        base.close()
        return f"sqlite:///{path}"

    def test_rows_of_the_version(self, url):
        reader = Query(url, SQL, ["age", "income"], "label")
        rows = reader.read(2)
        np.testing.assert_array_equal(rows.x, [[32, 0.1], [30, 1.5]])
        assert rows.y.tolist() == [0, 1] and rows.skipped == {"no finite number in column 'age'": 1}
        assert len(reader.read(7)) == 0

    def test_what_came_back_is_checked_too(self, url):
        sql = "SELECT * FROM decisions WHERE model_version >= :version - 1 ORDER BY id"
        rows = Query(url, sql, ["income"]).read(2)
        assert len(rows) == 3 and rows.skipped == {OLDER: 1}
        with pytest.raises(RowsError, match="row 4 has 'None' in column 'model_version'"):
            Query(url, "SELECT * FROM decisions WHERE id > 0 * :version ORDER BY id", ["income"]).read(2)
        with pytest.raises(RowsError, match=r"no column 'model_version'; the columns are 'income'"):
            Query(url, "SELECT income FROM decisions WHERE model_version = :version ORDER BY id", ["income"]).read(2)

    def test_nothing_is_written(self, url):
        reader = Query(url, SQL, ["income"])
        with pytest.raises(RowsError):
            Query(url, "DELETE FROM decisions WHERE model_version = :version -- order by id", ["income"]).read(2)
        # Python's driver begins no transaction before WITH.
        hidden = (
            "WITH old AS (SELECT id FROM decisions ORDER BY id) DELETE FROM decisions WHERE model_version = :version "
            "AND id IN old RETURNING model_version, income"
        )
        with pytest.raises(RowsError, match="readonly"):
            Query(url, hidden, ["income"]).read(2)
        assert len(reader.read(2)) == 3

    def test_databases_that_do_not_answer(self, url):
        with pytest.raises(RowsError, match="no such table"):
            Query(url, SQL.replace("decisions", "absent"), ["income"]).read(1)
        hidden = Query("nothing://ann:s3cret@host/base", SQL, ["income"])
        with pytest.raises(RowsError, match="did not answer") as caught:
            hidden.read(1)
        assert "s3cret" not in f"{caught.value} {hidden!r}"

    @pytest.mark.parametrize(
        ("sql", "message"),
        [
            (SQL.replace(":version", "2"), "must filter by the requested version"),
            (SQL.replace(":version", "'2'::version"), "must filter by the requested version"),
            (SQL.replace(":version", ":versions"), "must filter by the requested version"),
            (SQL.partition(" ORDER")[0], "must have an ORDER BY"),
        ],
    )
    def test_queries_that_are_refused(self, sql, message):
        with pytest.raises(ValueError, match=message):
            Query("sqlite://", sql, ["age"])

    def test_without_sqlalchemy(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "sqlalchemy", None)
        with pytest.raises(ImportError, match=r'pip install "performative\[flower\]"'):
            Query("sqlite://", SQL, ["age"]).read(1)


RECORDS = [
    {"model_version": 1, "age": 30, "label": True},
    {"model_version": 2, "age": decimal.Decimal("0.1"), "label": 0},
    {"model_version": 2, "age": "31.5", "label": 1.0},
    {"model_version": 2, "age": datetime.date(2024, 1, 1), "label": 1},
    {"model_version": 2, "age": None, "label": 1},
    {"model_version": np.int64(2), "age": np.float32(2), "label": 0},
]


class TestFunction:
    @pytest.mark.parametrize("kind", [list, pd.DataFrame, lambda r: {k: [row[k] for row in r] for k in r[0]}])
    def test_every_kind_of_table(self, kind):
        asked = []
        reader = Function(lambda version: asked.append(version) or kind(RECORDS), ["age"], "label")
        rows = reader.read(2)
        assert asked == [2] and isinstance(reader, Reader)
        assert rows.x.tolist() == [[0.1], [31.5], [2.0]] and rows.y.tolist() == [0, 1, 0]
        assert rows.skipped == {OLDER: 1, "no finite number in column 'age'": 2}

    @pytest.mark.parametrize("empty", [[], {}, pd.DataFrame(), pd.DataFrame({"model_version": [], "age": []})])
    def test_nothing_yet(self, empty):
        assert len(Function(lambda version: empty, ["age"]).read(1)) == 0

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            (None, "must return a DataFrame, a dict of columns or a list of dicts; it returned NoneType"),
            (np.ones((2, 2)), "it returned ndarray"),
            ([{"age": 1}], "no column 'model_version'; the columns are 'age'"),
            ([{"age": 1, "model_version": 1}, {"age": 2}], "row 2 has 'None'"),
            ({"age": [1, 2], "model_version": [1]}, "equal lengths"),
            (pd.DataFrame([[1, 2, 3]], columns=["age", "age", "model_version"]), "'age' occurs twice"),
            (pd.DataFrame({"age": [1]}).assign(model_version=pd.array([None], "Int64")), "have no version"),
        ],
    )
    def test_tables_that_are_refused(self, table, message):
        with pytest.raises(RowsError, match=message):
            Function(lambda version: table, ["age"]).read(1)
