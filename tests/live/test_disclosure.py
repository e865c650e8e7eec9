"""A secret stands in every field of a client's rows: whatever goes wrong, it never leaves the client."""

import sqlite3

import numpy as np
import pandas as pd
import pytest

import performative as pf
from performative.live import Callback, Federation, Folder, Function, Live, Query, rehearse
from performative.live.dispatch import Failed, dispatch_request
from performative.live.telling import LOG, RequestRefused, log_failure, tell_failure
from performative.live.transport import InProcess
from performative.live.wire import decode, encode
from performative.live.worker import Worker

SECRET = "Ada-Lovelace-12-Main-Street-4711"
GOOD = "a,b,default,model_version\n" + "0.1,0.2,1,{version}\n" * 8
FAULTS = {
    "an unquoted comma": GOOD + f"0.1,0.2,1,{{version}},{SECRET}\n",
    "a version that is text": GOOD + f"0.1,0.2,1,{SECRET}\n",
    "no version": f"a,b,default\n0.1,0.2,{SECRET}\n",
    "a header of people": f"{SECRET},b,default,model_version\n0.1,0.2,1,{{version}}\n",
    "a column twice": f"a,a,b,default,model_version,{SECRET}\n0.1,0.1,0.2,1,{{version}},1\n",
    "cells of text": f"a,b,default,model_version\n{SECRET},{SECRET},{SECRET},{{version}}\n" * 4,
    "not UTF-8": "a,b,default,model_version\n" + SECRET + "\udcff,0.2,1,{version}\n",
    "an open quote": GOOD + f'"{SECRET},0.2,1,{{version}}\n',
}  # fmt: skip


def two_clients(source, rounds=1):
    x, y = np.zeros((2, 8, 2)), np.tile([0.0, 1.0], (2, 4))
    problem = pf.Problem(pf.losses.logistic(0.1), pf.populations.Strategic(x, y, 0.0))
    algorithm = pf.p_fedavg(rate=0.1, deploy="round", batch=pf.Fixed(2))
    return Federation(problem, algorithm, rounds, source=source, timeout=30)


def written_by(folder, text):
    """Client 1 writes this file when a model is deployed; client 0's file is sound."""

    def publish(client):
        def do(deployed):
            here = folder / str(client)
            here.mkdir(parents=True, exist_ok=True)
            content = (GOOD if client == 0 else text).replace("{version}", str(deployed.version))
            (here / "rows.csv").write_bytes(content.encode("utf-8", "surrogateescape"))

        return Callback(do)

    reader = dict(features=["a", "b"], label="default")
    return lambda c: Live(publish(c), Folder(folder / str(c), **reader), minimum=1, patience=0.2)


def leaves(folder, heard):
    """Everything outside of the clients' own folders."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.parts[len(folder.parts)] == "server"]
    return b"".join([*heard, *(path.read_bytes() for path in files)])


def watched(made, folder, monkeypatch):
    """Rehearse, and return all that left the clients."""
    heard = []
    received = InProcess.receive

    def listen(self, seconds):
        found = received(self, seconds)
        heard.extend((reply.content or b"") + reply.error.encode() for reply in found)
        return found

    monkeypatch.setattr(InProcess, "receive", listen)
    try:
        rehearse(made, folder)
    except Exception as error:  # a run in which nobody could be heard may say so
        heard.append(str(error).encode())
    assert heard
    return leaves(folder, heard)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_of_a_file_carries_a_row_to_the_server(fault, tmp_path, monkeypatch, survived):
    made = two_clients(written_by(tmp_path / "rows", FAULTS[fault]))
    out = watched(made, tmp_path / "books", monkeypatch)
    with survived("a fault that might carry a row away"):
        assert SECRET.encode() not in out
        assert b"client's own log" in out


def raises(kind):
    def read(version):
        raise kind(f"cannot use {SECRET}")

    return read


@pytest.mark.parametrize("kind", [ValueError, KeyError, OSError, RuntimeError, UnicodeError, TimeoutError, MemoryError])
def test_no_error_of_ones_own_code_carries_a_row_to_the_server(kind, tmp_path, monkeypatch, survived):
    reader = Function(raises(kind), features=["a", "b"], label="default")
    made = two_clients(lambda c: Live(Callback(lambda deployed: None), reader, minimum=1, patience=0.1))
    out = watched(made, tmp_path, monkeypatch)
    with survived("a fault that might carry a row away"):
        assert SECRET.encode() not in out and kind.__name__.encode() in out
    log = (tmp_path / "clients" / "1" / LOG).read_text()
    assert SECRET in log  # its owner finds all of it
    assert (tmp_path / "clients" / "1" / LOG).stat().st_mode & 0o077 == 0


def test_a_query_that_fails_carries_nothing_to_the_server(tmp_path, monkeypatch):
    pytest.importorskip("sqlalchemy")
    place = tmp_path / "people.db"
    frame = pd.DataFrame({"a": [0.1], "b": [SECRET], "default": [1], "model_version": [SECRET]})
    with sqlite3.connect(place) as base:
        frame.to_sql("people", base, index=False)
    base.close()
    for sql in ("SELECT * FROM people WHERE :version >= 0 ORDER BY a", f"SELECT {SECRET[:3]} :version ORDER BY 1"):
        query = Query(f"sqlite:///{place}", sql, features=["a", "b"], label="default")
        made = two_clients(lambda c, query=query: Live(Callback(lambda deployed: None), query, minimum=1, patience=0.1))
        assert SECRET.encode() not in watched(made, tmp_path / sql[7:9], monkeypatch)


def test_workers_and_flower_are_told_the_kind_alone(tmp_path, monkeypatch):
    """Both ways out of a node: the warm worker's answer, and the error that Flower sends for its app."""

    def fails():
        raise ValueError(SECRET)

    monkeypatch.delenv("PERFORMATIVE_WORKER", raising=False)
    with pytest.raises(Failed) as caught:
        dispatch_request(fails, tmp_path / "app.py", 0, tmp_path, b"", 5.0)
    assert SECRET not in str(caught.value) and "ValueError" in str(caught.value)
    (tmp_path / "app.py").write_text(f"def federation():\n    raise ValueError({SECRET!r})\n")
    dispatch = encode({"app": str(tmp_path / "app.py"), "client": 0, "folder": str(tmp_path)}, {})
    assert SECRET not in decode(Worker().do(dispatch))[0]["error"]


def test_what_is_told(tmp_path):
    assert tell_failure(RequestRefused("the request is stale")) == "the request is stale"
    strange = type(f"{SECRET} ", (Exception,), {"sentence": SECRET})
    assert SECRET not in tell_failure(strange("x"))
    log_failure(tmp_path, ValueError("y" * (1 << 20)))
    log_failure(tmp_path, ValueError("z"))
    assert "z" in (tmp_path / LOG).read_text() and (tmp_path / f"{LOG}.old").exists()
