"""Tables that are easily misread: each is read as it is meant, or refused by name."""

import decimal

import duckdb
import numpy as np
import pandas as pd
import pyarrow
import pytest

from performative.assess.columns import is_dates
from performative.assess.preparing import prepare
from performative.assess.problems import problem_of_people
from performative.assess.reading import read_people
from performative.assess.separated import NOTES
from performative.config.start import describe_columns, guess_roles

N = 60
RNG = np.random.default_rng(0)


def people():
    return pd.DataFrame({"debt": RNG.normal(5, 2, N), "late": np.arange(N) % 2})


def prepared(frame, **options):
    asked = {"label": "late", "positive": None, "client": None, "strategic": None, "group": None, "ignore": [],
             "rows": 10_000, "scale": "auto", "seed": 0}  # fmt: skip
    return prepare(frame, **(asked | options))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("income,late\n1,065,0\n0,936,1\n", "line 2 has 3 fields, but the header has 2"),
        ("id,debt\n1,2.5,\n2,3.5,\n", "line 2 has 3 fields.* remove a ',' at the end of lines"),
        ("id,debt\n0,2.5,3\n1,3.5,4\n", "line 2 has 3 fields"),
        ("a,b\n1,2\n1,2,3\n", "line 3 has 3 fields, 2 are expected"),
        ("income;late\n1.065;0\n936;1\n", "'income' has entries such as '1.065' and '936'.* may mean 1065 or 1.065"),
        ("income;debt\n45.000;2,5\n52.300;1\n", "'income' has entries such as '45.000'"),
        ('income,late\n"1,065",0\n936,1\n', "'income' has entries such as '1,065' and '936'"),
        ("a (net, yearly);b\n1,5;0\n2,5;1\n", "may be separated by ',' or by ';'.*sep=;"),
        ("# export of 2024\na,b\n1,2\n", "is a comment, '# export of 2024'; delete"),
        ("", "the file is empty"),
        ("sep=;\n", "the file is empty"),
    ],
)
def test_files_that_may_be_misread_are_refused(tmp_path, text, told):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ValueError, match=told):
        read_people(tmp_path / "p.csv")


@pytest.mark.parametrize(
    ("text", "columns", "noted"),
    [
        ('"a","b"\n"r1",1,2\n"r2",3,4\n', {"a": [1, 3], "b": [2, 4]}, "taken for a row name"),
        ("a,b\n1,5.5,2\n2,6.5,4\n", {"a": [5.5, 6.5], "b": [2, 4]}, "taken for a row name"),
        ("sep=;\na;b\n1,5;2\n3;4\n", {"a": [1.5, 3], "b": [2, 4]}, ""),
        ("a (net, EUR);b;c\n1.5;2;3\n2.25;4;5\n", {"a (net, EUR)": [1.5, 2.25], "b": [2, 4], "c": [3, 5]}, ""),
        ("a\tb\n1,5\t2\n2,5\t4\n", {"a": [1.5, 2.5], "b": [2, 4]}, ""),
        ("a|b\n1,5|0.5\n2,5|1.5\n", {"a": [1.5, 2.5], "b": [0.5, 1.5]}, ""),
        ('a,b\n"1,5",2\n"2,5",4\n', {"a": [1.5, 2.5], "b": [2, 4]}, "the comma in '1,5' was read as a decimal"),
        ("a;b\n1.200,50;2\n3,5;4\n", {"a": [1200.5, 3.5], "b": [2, 4]}, ""),
        (" a , b \n1.065,2\n0.936,4\n", {"a": [1.065, 0.936], "b": [2, 4]}, ""),
        ("a;b\n45.000;2\n52.300;4\n", {"a": [45, 52.3], "b": [2, 4]}, "'45.000' was read as 45; if it means 45000"),
        ("#id,b\n1,2\n5,4\n", {"#id": [1, 5], "b": [2, 4]}, ""),
    ],
)
def test_files_as_people_export_them(tmp_path, text, columns, noted):
    (tmp_path / "p.csv").write_text(text)
    frame, _ = read_people(tmp_path / "p.csv")
    assert frame.to_dict("list") == columns
    assert noted in " ".join(frame.attrs[NOTES]) and bool(noted) is bool(frame.attrs[NOTES])


def test_exact_decimals_are_numbers(tmp_path):
    import duckdb

    with duckdb.connect(tmp_path / "p.duckdb") as connection:
        connection.execute(
            "CREATE TABLE a AS SELECT i::DECIMAL(10, 2) / 4 debt, (i // 2)::DECIMAL(9, 0) k FROM range(9) t(i)"
        )
        connection.execute("CREATE TABLE b AS SELECT 1 x")
    frame, _ = read_people(f"{tmp_path}/p.duckdb#a")
    assert [kind.kind for kind in frame.dtypes] == ["f", "i"] and frame.k.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    with pytest.raises(
        ValueError, match=r"which table contains the rows\? Name one, as .*p\.duckdb#TABLE; there are: a, b"
    ):
        read_people(f"{tmp_path}/p.duckdb")
    exact, _ = read_people(pd.DataFrame({"a": [decimal.Decimal("1.5"), None], "b": [1, None]}, dtype=object))
    assert exact.a.tolist()[0] == 1.5 and exact.dtypes.map(lambda kind: kind.kind).tolist() == ["f", "f"]


@pytest.mark.parametrize(
    "entries", [["1", "2", "n.a."], ["12%", "15%", "20%"], ["€1", "€2", "€3"], ["1,5", "2,5", "3"]]
)
def test_numbers_written_as_text_are_no_categories(entries):
    frame = people().assign(size=entries * (N // 3))
    with pytest.raises(ValueError, match=r"column 'size' holds numbers, but '.*' is not written as one"):
        prepared(frame)
    size = next(column for column in describe_columns(frame) if column.name == "size")
    assert size.stray is not None and "size" in guess_roles([size]).ignore


def test_text_among_numbers_is_noted():
    frame = people().assign(children=["0", "1", "2"] * (N // 3))
    assert not any("holds numbers" in note for note in prepared(frame).notes), "categories in digits"
    frame.loc[3, "children"] = "3+"
    assert any("holds numbers, but also '3+'" in note for note in prepared(frame).notes)
    total = people().assign(debt=[*map(str, range(N - 1)), "Total"], other=RNG.normal(size=N))
    total["late"] = total.late.where(total.debt != "Total")
    with pytest.raises(ValueError, match="It holds numbers, but also 'Total': correct those"):
        prepared(total)


def test_a_column_is_not_overwritten():
    frame = people().assign(bank=["north", "south", "north"] * (N // 3))
    frame["bank=south"] = frame.debt + 1
    made = prepared(frame)
    assert made.features == ["debt", "bank=south_", "bank=south"] or set(made.features) == {
        "debt", "bank=south", "bank=south_"
    }  # fmt: skip
    np.testing.assert_array_equal(made.frame["bank=south"], frame["bank=south"])
    assert any("'bank=south' is called 'bank=south_'" in note for note in made.notes)
    client = prepared(people().rename(columns={"late": "client"}), label="client")
    assert client.frame.client.tolist() == [0, 1] * (N // 2) and client.client == "client_"


def test_identifiers_and_flags_are_not_moved():
    frame = people().assign(
        customer=RNG.permutation(N) + 10_000, account=np.arange(N) * 10, order_no=RNG.choice(10**9, N, replace=False),
        code=[f"u{i}" for i in range(N)], owner=np.arange(N) % 3 == 0, female=(np.arange(N) % 5 == 0) * 1.0,
        salary=20_000 + RNG.choice(80_000, N, replace=False),
    )  # fmt: skip
    made = prepared(frame)
    assert made.features == ["debt", "owner", "female", "salary"] and made.strategic == ("debt", "salary")
    assert any("all 2 numeric columns, but not 'owner', 'female' (0 or 1)" in note for note in made.notes)
    roles = guess_roles(describe_columns(frame), "late")
    assert roles.ignore == ("customer", "account", "order_no", "code") and roles.strategic == made.strategic
    assert prepared(frame, strategic=["female", "customer"]).strategic == ("female", "customer")
    with pytest.raises(ValueError, match=r"no numeric column that people could change other than 'owner' \(0 or 1\)"):
        prepared(frame[["owner", "late"]])


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_nullable_types_are_ordinary(backend):
    frame = people().assign(age=[20, None, 30, 40, 50, 20] * (N // 6), bank=["a", None, "b"] * (N // 3))
    frame.loc[2, "debt"] = None
    plain, made = (
        problem_of_people(one, label="late")[1] for one in (frame, frame.convert_dtypes(dtype_backend=backend))
    )
    assert made.notes == plain.notes and made.strategic == plain.strategic
    pd.testing.assert_frame_equal(made.frame, plain.frame, check_dtype=False)


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, np.array([1.0])])
def test_nested_columns_are_named(value):
    frame = people().assign(emb=[value] * N)
    for use in (prepared, describe_columns):
        with pytest.raises(ValueError, match=r"column 'emb' contains (lists|dictionaries|arrays)"):
            use(frame)
    assert prepared(frame, ignore=["emb"]).features == ["debt"]


def test_names_of_columns():
    frame = people()
    with pytest.raises(ValueError, match=r"the table: columns have 2 levels of names, such as .'a', 'debt'."):
        read_people(frame.set_axis(pd.MultiIndex.from_product([["a"], frame.columns]), axis=1))
    numbered = problem_of_people(frame.set_axis([0, 1], axis=1), label=1)[1]
    assert numbered.label == "1" and numbered.strategic == ("0",)


def test_missing_labels_are_counted():
    frame = people().assign(late=[None, "late"] * (N // 2))
    with pytest.raises(ValueError, match=r"'late' in every row that has one, and missing in 30,.*None and NA"):
        prepared(frame, positive="late")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("none.xlsx", "none.xlsx: there is no such file"),
        ("people.xlsx", "people.xlsx: spreadsheets are not read; save the sheet as CSV"),
        ("none.duckdb#t", "none.duckdb: there is no such file"),
        ("", "the path of the table is empty"),
    ],
)
def test_what_is_no_table_is_named(tmp_path, monkeypatch, path, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.xlsx").touch()
    with pytest.raises(ValueError, match=told):
        read_people(path)


def days(step=1):
    return pd.Series(pd.Timestamp("2024-01-31") + pd.to_timedelta(np.arange(N) // step, "D"))


@pytest.mark.parametrize("step", [1, 2, 10])
@pytest.mark.parametrize("write", [lambda d: d, lambda d: d.dt.date, lambda d: d.dt.strftime("%Y-%m-%d"),
                                   lambda d: d.dt.strftime("%d.%m.%Y"), lambda d: d.dt.strftime("%m/%d/%y %H:%M"),
                                   lambda d: d.dt.to_period("D").astype(object)])  # fmt: skip
def test_dates_are_dates_however_they_are_written(step, write):
    """As text they used to be identifiers, 0/1 columns, or a column of too many values, by how many there were."""
    frame = people().assign(day=write(days(step)))
    with pytest.raises(ValueError, match=r"column 'day' contains dates; .* or ignore it \(--ignore\)"):
        prepared(frame)
    assert prepared(frame, ignore=["day"]).features == ["debt"]
    column = next(column for column in describe_columns(frame) if column.name == "day")
    assert column.kind == "dates" and "day" in guess_roles(describe_columns(frame)).ignore


@pytest.mark.parametrize("entry", ["1.2.3", "2020-2021", "12-10", "18-25", "a", "5", "1.065.000"])
def test_what_is_no_date(entry):
    assert not is_dates(pd.Series([entry]))


def test_tables_of_every_kind_are_read():
    """DuckDB relations, lazy frames and {client: table} are tables elsewhere; here they used to be refused."""
    frame = people()
    polars = pytest.importorskip("polars").from_pandas(frame)
    for table in (frame, polars, polars.lazy(), pyarrow.Table.from_pandas(frame), duckdb.from_df(frame)):
        pd.testing.assert_frame_equal(read_people(table)[0], frame)
    parts = {"north": frame[:40], "south": frame[40:]}
    problem, _, _ = problem_of_people(parts, label="late", client="bank")
    assert problem.population.count.tolist() == [40, 20] and problem.columns.clients == ("north", "south")
    with pytest.raises(ValueError, match="tables by client need client="):
        problem_of_people(parts, label="late")
    for wrong in (None, [1], frame.debt, {"debt": [1]}):
        with pytest.raises(ValueError, match="people must be a table with one row per person"):
            read_people(wrong)


def test_few_people_are_noted():
    """5 rows and 3 columns used to give an assessment without a word."""
    assert not any("fits much that is chance" in note for note in prepared(people()).notes)
    few = prepared(people()[:5].assign(usage=RNG.normal(size=5)))
    assert any("Only 2 people have the rarer label, for 2 columns of the model" in note for note in few.notes)


def test_columns_with_a_role_are_not_ignored():
    frame = people().assign(bank=["north", "south"] * (N // 2))
    for role in ("label", "client", "group"):
        name = "late" if role == "label" else "bank"
        with pytest.raises(ValueError, match=f"ignore: column '{name}' is the {role}, which is used; remove it"):
            prepared(frame, **{role: name}, ignore=[name])
    with pytest.raises(ValueError, match="label must name the column of labels; the table has"):
        prepared(frame, label=None)


def test_a_client_for_every_person_is_refused():
    with pytest.raises(ValueError, match="client='debt' has 60 values in 60 rows; choose a column with fewer clients"):
        prepared(people().assign(age=RNG.normal(size=N)), client="debt")
