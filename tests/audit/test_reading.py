"""Folders of logs: what is read from them, and what each fault leads to."""

import json

import numpy as np
import pandas as pd
import pytest
from people import DEPLOYMENTS, HEADER, folder_of, people, write

from performative.audit.reading import read_logs
from performative.audit.schema import LogError


@pytest.mark.parametrize("file", ["data.csv", "data.parquet", "data/part.csv", "data/deep/part.parquet"])
def test_moments_are_those_of_pandas(tmp_path, file):
    frame = people()
    logs = read_logs(folder_of(tmp_path, frame, file=file))
    assert set(logs.clients) == {"north", "south"}
    columns = ["income", "age", "label"]
    for name, log in logs.clients.items():
        assert log.columns == tuple(columns)
        assert log.parameters == ("income", "age")
        np.testing.assert_array_equal(log.theta, [[0.5, 0.0], [1.0, 0.5], [1.5, -1.0]])
        np.testing.assert_array_equal(log.time, [1.0, 2.0, 3.0])
        for t, version in enumerate(["v1", "v2", "v3"]):
            mine = frame[(frame.client == name) & (frame.deployment == version)][columns]
            assert log.count[t] == len(mine)
            np.testing.assert_allclose(log.mean[t], mine.mean(), rtol=1e-13)
            np.testing.assert_allclose(log.cov[t], mine.cov(), rtol=1e-12)
            kept = log.sample[t][~np.isnan(log.sample[t]).any(axis=1)]
            # Fewer rows than the sample may hold: all of them are there, once each.
            np.testing.assert_allclose(kept[np.lexsort(kept.T)], mine.to_numpy()[np.lexsort(mine.to_numpy().T)])
    assert (logs.label, logs.binary, logs.loss) == ("label", True, "logistic")
    assert logs.parameters == {"income": 0, "age": 1}
    shares = frame.client.value_counts() / len(frame)
    assert logs.weights == pytest.approx(shares.to_dict())
    assert logs.rows == logs.used == 60
    json.dumps(logs.to_dict(), allow_nan=False)


def test_other_names_weights_and_ignored_columns(tmp_path):
    frame = people().rename(columns={"deployment": "model", "client": "bank", "label": "default", "age": "years"})
    frame["person"] = "x"
    toml = (
        '[columns]\ndeployment = "model"\nclient = "bank"\nlabel = "default"\nignore = ["person"]\n'
        '[model]\nloss = "ridge"\npenalty = 0.5\nparameters = {years = "theta_age"}\n[weights]\nnorth = 1\nsouth = 3\n'
    )
    logs = read_logs(folder_of(tmp_path, frame, DEPLOYMENTS.replace("deployment", "model"), toml))
    assert logs.features == ("income", "years")
    assert logs.label == "default" and logs.loss == "ridge" and logs.penalty == 0.5
    assert logs.clients["north"].columns == ("income", "years", "label")
    assert logs.parameters == {"income": 0, "years": 1}
    assert logs.weights == {"north": 0.25, "south": 0.75}


def test_semicolons_and_decimal_commas(tmp_path):
    files = {
        "deployments.csv": "deployment;theta_x\n1;0,5\n2;1,5\n",
        "data.csv": "deployment;x\n1;1,25\n1;2,25\n2;3,5\n2;4,5\n",
        "audit.toml": '[files]\ndelimiter = ";"\ndecimal = ","\n',
    }
    log = read_logs(write(tmp_path, files)).clients["all"]
    np.testing.assert_array_equal(log.theta, [[0.5], [1.5]])
    np.testing.assert_array_equal(log.mean, [[1.75], [4.0]])
    np.testing.assert_array_equal(log.cov, [[[0.5]], [[0.5]]])


def test_files_as_spreadsheets_and_pandas_write_them(tmp_path):
    """A byte order mark, Windows line ends, quotes, an empty line, and an index column."""
    lines = [
        "\ufeff,deployment,client,x,time",
        '0,1,"a, b",1,9',
        '1,1,"a, b",2,9',
        "",
        '2,2,"a, b",3,9',
        '3,2,"a, b",4,9',
    ]
    write(tmp_path, {"deployments.csv": "\ufeffdeployment,theta_x\r\n1,0\r\n2,1\r\n"})
    (tmp_path / "data.csv").write_bytes("\r\n".join(lines).encode("utf-8"))
    logs = read_logs(tmp_path)
    assert logs.features == ("x",) and list(logs.clients) == ["a, b"]
    np.testing.assert_array_equal(logs.clients["a, b"].mean, [[1.5], [3.5]])
    assert any("ignored: '', 'time'" in note for note in logs.notes)


def test_ids_of_different_kinds_are_one(tmp_path):
    """Whole numbers in one file are text in another, and floats where a column once had a gap."""
    files = {
        "deployments.csv": "deployment,theta_x\n1,0\n2,1\n",
        "data/a.parquet": pd.DataFrame({"deployment": [1, 1, 2, 2], "x": [1.0, 2.0, 3.0, 4.0]}),
        "data/b.parquet": pd.DataFrame({"deployment": [1.0, 2.0, np.nan, 1.0], "x": [5, 6, 7, 8]}),
        "data/c.csv": "deployment,x\n 1 ,9\n2,10\n",
    }
    logs = read_logs(write(tmp_path, files))
    np.testing.assert_array_equal(logs.clients["all"].count, [5, 4])
    assert logs.dropped == {"no deployment": 1}


@pytest.mark.parametrize(
    ("times", "expected", "unit"),
    [
        (["2024-01-31", "2024-02-10", "2024-03-01T12:00:00"], [0.0, 10.0, 30.5], "days"),
        (["20240131", "20240210", "20240301"], [0.0, 10.0, 30.0], "days"),
        (["2023", "2024", "2026.5"], [2023.0, 2024.0, 2026.5], "as given"),
        (["2024-01-31T00:00:00+01:00", "2024-01-31", "2024-02-01"], [0.0, 1 / 24, 1 + 1 / 24], "days"),
    ],
)
def test_times(tmp_path, times, expected, unit):
    rows = "".join(f"v{i + 1},{t},{i},0\n" for i, t in enumerate(times))
    logs = read_logs(folder_of(tmp_path, deployments="deployment,time,theta_income,theta_age\n" + rows))
    np.testing.assert_allclose(logs.deployments.time, expected)
    assert logs.deployments.unit == unit


def test_dates_of_a_parquet_file(tmp_path):
    table = pd.DataFrame(
        {"deployment": ["v2", "v1"], "time": pd.to_datetime(["2024-01-03", "2024-01-01"]), "theta": [2, 1]}
    )
    rows = people()[lambda f: f.deployment != "v3"]
    logs = read_logs(write(tmp_path, {"deployments.parquet": table, "data.csv": rows}))
    assert logs.deployments.names == ("v1", "v2")
    np.testing.assert_array_equal(logs.deployments.time, [0.0, 2.0])
    np.testing.assert_array_equal(logs.deployments.theta, [[1.0], [2.0]])
    assert logs.deployments.parameters == ("theta",)
    assert any("sorted" in note for note in logs.notes)


# What is left out is counted and said.


def rows_with(line, column=None, value=None):
    frame = people().astype({"income": object, "age": object, "label": object})
    if column:
        frame.loc[line, column] = value
    return frame


@pytest.mark.parametrize(
    ("column", "value", "reason", "said"),
    [
        ("income", "", "an empty or infinite feature", "income 1"),
        ("income", "inf", "an empty or infinite feature", "income 1"),
        ("age", "NaN", "an empty or infinite feature", "age 1"),
        ("label", "-inf", "an infinite label", "1 of 60"),
        ("client", "", "no client", "1 of 60"),
        ("deployment", "", "no deployment", "1 of 60"),
        ("deployment", "v22", "a deployment that is not listed", "Did you mean 'v2'?"),
    ],
)
def test_dropped_rows_are_counted_and_said(tmp_path, column, value, reason, said):
    logs = read_logs(folder_of(tmp_path, rows_with(7, column, value)))
    assert logs.dropped == {reason: 1}
    assert (logs.rows, logs.used) == (60, 59)
    note = next(n for n in logs.notes if n.startswith("DROPPED"))
    assert reason in note and said in note


def test_one_missing_label_in_a_hundred_is_dropped_more_leave_the_label_out(tmp_path):
    frame = pd.concat([people()] * 5, ignore_index=True).astype({"label": object})
    frame.loc[:2, "label"] = ""
    logs = read_logs(folder_of(tmp_path, frame))
    assert logs.label == "label" and logs.used == 297
    frame.loc[:3, "label"] = ""
    logs = read_logs(folder_of(tmp_path, frame))
    assert logs.label is None and logs.used == 300
    assert logs.clients["north"].columns == ("income", "age")
    assert any("4 of 300 rows (1.3%) have no label" in note for note in logs.notes)
    (tmp_path / "audit.toml").write_text('[labels]\nmissing = "labeled"\n')
    logs = read_logs(tmp_path)
    assert logs.label == "label" and logs.used == 296


def test_labels_that_go_missing_late_change_nothing_before(tmp_path):
    """The features of unlabeled rows count from the first row on, wherever the first gap is."""
    frame = people(3000).astype({"label": object})
    frame.loc[2000:, "label"] = ""
    write(tmp_path, {"deployments.csv": DEPLOYMENTS, "data.csv": frame})
    logs = read_logs(tmp_path, sample=5000)
    mine = frame[(frame.client == "south") & (frame.deployment == "v2")][["income", "age"]].astype(float)
    np.testing.assert_allclose(logs.clients["south"].mean[1], mine.mean(), rtol=1e-12)
    np.testing.assert_allclose(logs.clients["south"].cov[1], mine.cov(), rtol=1e-12)
    kept = logs.clients["south"].sample[1]
    np.testing.assert_allclose(np.nansum(kept, axis=0), mine.sum(), rtol=1e-12)


def test_a_constant_column_is_left_out(tmp_path):
    logs = read_logs(folder_of(tmp_path, people().assign(one=0.1)))
    assert logs.features == ("income", "age")
    assert logs.clients["north"].cov.shape == (3, 3, 3)
    assert any("'one' is 0.1 in all rows" in note for note in logs.notes)


def test_a_client_with_too_few_rows(tmp_path):
    frame = people()
    frame.loc[0, "client"] = "lonely"
    frame.loc[(frame.client == "south") & (frame.deployment == "v2"), "client"] = "north"
    logs = read_logs(folder_of(tmp_path, frame))
    assert set(logs.clients) == {"north", "south"}
    np.testing.assert_array_equal(logs.clients["south"].time, [1.0, 3.0])
    assert any("Left out: 'lonely', with fewer than two usable rows" in note for note in logs.notes)
    assert any(
        "fewer than two rows under some deployments, which are ignored for them: 'south'" in n for n in logs.notes
    )
    frame = frame[frame.deployment != "v3"]
    notes = read_logs(folder_of(tmp_path, frame)).notes
    assert any("No rows were collected under: 'v3'" in note for note in notes)


def test_notes_do_not_grow_with_the_clients(tmp_path):
    frame = pd.DataFrame({"deployment": ["v1"] * 2000, "client": np.arange(2000) // 2, "x": np.arange(2000.0)})
    logs = read_logs(folder_of(tmp_path, frame.iloc[1:]))
    assert len(logs.clients) == 999 and len(logs.notes) < 10
    assert sum(map(len, logs.notes)) < 2000


@pytest.mark.parametrize(
    ("deployments", "said"),
    [
        ("deployment,time,theta_x\nv1,1,2\n", "only one deployment"),
        ("deployment,time,theta_x\nv1,1,2\nv2,2,2\nv3,3,2\n", "same in all deployments"),
        ("deployment,theta_x\nv1,1\nv2,2\nv3,5\n", "No times are given"),
        ("deployment,time,theta_x\nv1,3,1\nv2,2,2\nv3,1,5\n", "have been sorted"),
        (
            "deployment,time,theta_x,author\nv1,1,1,me\nv2,2,2,me\nv3,3,5,me\n",
            "without a role were ignored: author",
        ),
    ],
)
def test_notes_on_deployments(tmp_path, deployments, said):
    assert any(said in note for note in read_logs(folder_of(tmp_path, deployments=deployments)).notes)


# What is refused names file, row, column, rule, what came.


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"deployments.csv": None}, r"needs deployments.csv or deployments.parquet"),
        ({"data.csv": None}, r"needs rows of people"),
        ({"data.parquet": people()}, r"more than one place: data.csv, data.parquet"),
        ({"deployments.csv": ""}, r"deployments.csv: the file is empty"),
        ({"deployments.csv": "deployment,theta_x\n"}, r"no deployments: the file has no rows"),
        ({"deployments.csv": "deploymnt,theta_x\nv1,1\n"}, r"no column 'deployment'. Did you mean 'deploymnt'"),
        ({"deployments.csv": "deployment,tehta_x\nv1,1\n"}, r"models are missing.* Did you mean 'tehta_x'"),
        ({"deployments.csv": "deployment,theta_x\nv1,1\nv2,2\nv1,3\n"}, r"line 4: column 'deployment'.*'v1'.*line 2"),
        ({"deployments.csv": "deployment,theta_x\nv1,1\n,2\n"}, r"line 3: column 'deployment': is empty"),
        ({"deployments.csv": "deployment,theta_x\nv1,1\nv2,\n"}, r"line 3: column 'theta_x'.*got nothing"),
        ({"deployments.csv": "deployment,theta_x\nv1,inf\nv2,1\n"}, r"line 2: column 'theta_x'.*got inf"),
        ({"deployments.csv": "deployment,theta_x\nv1,1e308\nv2,1\n"}, r"line 2: .*below 1e\+100; got 1e\+308"),
        ({"deployments.csv": "deployment,theta_x\nv1,1\nv2,1.0.1\n"}, r"line 3: column 'theta_x'.*got '1.0.1'"),
        ({"deployments.csv": "deployment,time,theta_x\nv1,soon,1\n"}, r"line 2: column 'time'.*got 'soon'"),
        ({"deployments.csv": "deployment,time,theta_x\nv1,,1\n"}, r"line 2: column 'time'.*got nothing"),
        ({"deployments.csv": "deployment,time,theta_x\nv1,2024-01-01,1\nv2,7,1\n"}, r"line 3.*'7' among dates"),
        ({"deployments.csv": "deployment,time,theta_x\nv1,2,1\nv2,1,1\nv3,2,1\n"}, r"line 4: column 'time'.*line 2"),
        ({"deployments.csv": "deployment,scoring\nv1,\n"}, r"line 2: column 'scoring': is empty"),
        ({"deployments.csv": "deployment,scoring\nv1,s.csv\n"}, r"line 2: scoring names 's.csv', but there is no"),
        ({"deployments.csv": "deployment,scoring\nv1,../s.csv\n"}, r"must lie inside the folder"),
        ({"data.csv": HEADER + "v1,a,1,2,0\nv1,a,1,forty,0\n"}, r"data.csv: line 3: column 'age'.*got 'forty'"),
        ({"data.csv": HEADER + "v1,a,1,2,0\nv1,a,1,2\n"}, r"data.csv: line 3: expected 5 values.*got 4"),
        ({"data.csv": HEADER.replace("deployment", "deployement") + "v1,a,1,2,0\n"}, r"mean 'deployement'"),
        ({"data.csv": "deployment,client,label\nv1,a,0\n"}, r"no features"),
        ({"data.csv": "deployment,x,x\nv1,1,2\n"}, r"column 'x': this column occurs twice"),
        ({"data.csv": "deployment;x\nv1;1\n"}, r"delimiter = ';'"),
        ({"data.csv": HEADER}, r"no client has two usable rows"),
        ({"data.csv": HEADER + "v9,a,1,2,0\nv9,a,1,3,0\n"}, r"2 had a deployment that is not listed"),
        ({"data.csv": HEADER + "v1,a,1,2,0\nv1,a,1,2,0\n"}, r"all columns .* are constant"),
        ({"audit.toml": "[colums]\n"}, r"unknown table \[colums\]. Did you mean 'columns'"),
        ({"audit.toml": "[columns]\ndeploymet = 'a'\n"}, r"no key 'deploymet'. Did you mean 'deployment'"),
        ({"audit.toml": "[columns]\nlabel = 3\n"}, r"columns.label must be text; got 3"),
        ({"audit.toml": "[columns]\nlabel = 'client'\n"}, r"gives 'client' two roles"),
        ({"audit.toml": "[columns]\nlabel = 'lable'\n"}, r"no column 'lable'. Did you mean 'label'"),
        ({"audit.toml": "[columns]\nfeatures = ['incom']\n"}, r"no column 'incom'. Did you mean 'income'"),
        ({"audit.toml": "[model]\nloss = 'hinge'\n"}, r"model.loss must be one of 'squared', 'logistic', 'ridge'"),
        ({"audit.toml": "[model]\npenalty = -1\n"}, r"model.penalty must be a number >= 0; got -1"),
        ({"audit.toml": "[model]\nparameters = {incom = 'age'}\n"}, r"no feature 'incom'. Did you mean 'income'"),
        ({"audit.toml": "[model]\nparameters = {age = 'theta_agee'}\n"}, r"no parameter 'theta_agee'.*'age'"),
        ({"audit.toml": "[model]\nparameters = {age = 'income'}\n"}, r"two features share a parameter"),
        ({"audit.toml": "[weights]\nnorth = 1\n"}, r"client 'south' has rows but no weight"),
        ({"audit.toml": "[weights]\nnorth = 1\nsout = 1\n"}, r"no client 'sout' with rows. Did you mean 'south'"),
        ({"audit.toml": "[weights]\nnorth = 0\nsouth = 1\n"}, r"weights.north must be a number > 0"),
        ({"audit.toml": "[decision]\nmovable = ['incme']\n"}, r"no feature 'incme'. Did you mean 'income'"),
        ({"audit.toml": "[columns\n"}, r"not valid TOML"),
    ],
)  # fmt: skip
def test_faults_are_refused(tmp_path, files, message):
    full = {"deployments.csv": DEPLOYMENTS, "data.csv": people(), **files}
    write(tmp_path, {name: content for name, content in full.items() if content is not None})
    with pytest.raises(LogError, match=message):
        read_logs(tmp_path)


def test_more_faults_of_rows(tmp_path):
    frame = people()
    write(tmp_path, {"deployments.csv": DEPLOYMENTS, "data/a.parquet": frame.assign(job="clerk")})
    with pytest.raises(LogError, match=r"data/a.parquet: column 'job': must be numeric; got .*string"):
        read_logs(tmp_path)
    write(tmp_path, {"data/a.parquet": frame, "data/b.csv": frame.drop(columns="age").assign(agee=1)})
    with pytest.raises(
        LogError, match=r"data/b.csv: there is no column 'age', which data/a.parquet has. Did you mean 'agee'"
    ):
        read_logs(tmp_path)
    write(tmp_path, {"data/b.csv": frame.assign(more=1)})
    with pytest.raises(LogError, match=r"data/b.csv: column 'more': is not in data/a.parquet"):
        read_logs(tmp_path)
    write(tmp_path, {"data/b.csv": frame.assign(label=frame.label + 1), "audit.toml": '[model]\nloss = "logistic"\n'})
    with pytest.raises(
        LogError, match=r"data/b.csv: line \d+: column 'label': must be 0 or 1 for the logistic loss; got 2"
    ):
        read_logs(tmp_path)
    write(tmp_path, {"data/b.csv": frame.assign(accepted="maybe"), "data/a.parquet": frame.assign(accepted=1)})
    with pytest.raises(LogError, match=r"data/b.csv: line 2: column 'accepted': must be 0 or 1; got 'maybe'"):
        read_logs(tmp_path)
    (tmp_path / "data" / "b.csv").write_bytes(b"deployment,client,income,age,label,accepted\nv1,\xff\xfe,1,2,0,1\n")
    with pytest.raises(LogError, match=r"data/b.csv: not UTF-8"):
        read_logs(tmp_path)
    # The same beyond what reading the header looks at.
    good = frame.assign(accepted=1).to_csv(index=False).encode() + b"v1,n,1,2,0,1\n" * 2000
    (tmp_path / "data" / "b.csv").write_bytes(good + b"v1,\xff\xfe,1,2,0,1\n")
    with pytest.raises(LogError, match=r"data/b.csv: not readable as UTF-8"):
        read_logs(tmp_path)
    (tmp_path / "data" / "a.parquet").write_bytes(b"deployment,client\n")
    with pytest.raises(LogError, match=r"data/a.parquet: not a Parquet file"):
        read_logs(tmp_path)
    with pytest.raises(LogError, match="there is no such folder"):
        read_logs(tmp_path / "elsewhere")
    with pytest.raises(LogError, match="this is a file, not a folder"):
        read_logs(tmp_path / "audit.toml")


def test_a_persons_id_is_no_client(tmp_path):
    n = 40_000
    frame = pd.DataFrame({"deployment": "v1", "client": np.arange(n), **{f"x{j}": np.arange(n) for j in range(20)}})
    with pytest.raises(LogError, match=r"data.parquet: column 'client'.*person's id"):
        read_logs(folder_of(tmp_path, frame, file="data.parquet"))
