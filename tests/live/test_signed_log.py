"""The server's signed log: whatever is done to it afterwards is found, and the first bad line is named."""

import json
import os
import shutil

import numpy as np
import pytest
from federations import federation, transport
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from performative.cli.app import app as commands
from performative.live import (
    archives,
    read_journal,
    rehearse,
    serve,
    verify_journal,
)
from performative.live.archives import archive, finish_archive
from performative.live.journal import Journal

LINES = 8


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with a log of eight lines, by name the bytes of its files."""
    folder = tmp_path_factory.mktemp("log")
    journal = Journal(folder)
    journal.write("run began", run="a", identity="b")
    for number in range(1, LINES):
        journal.write("round", run="a", round=number, heard=5)
    assert verify_journal(folder).sound
    return folder


def copied(written, folder):
    folder.mkdir(exist_ok=True, parents=True)
    for path in written.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder / "journal.jsonl"


def test_a_run_is_logged(tmp_path):
    """Rounds, deployments with digests, approvals and refusals, in order; `verify` goes through all of it."""

    def before_deploy(theta, report):
        return "it rejects too many people" if report["round"] == 2 else True

    made = federation(rounds=3, before_deploy=before_deploy)
    rehearse(made, tmp_path)
    folder = tmp_path / "server"
    whats = [entry["what"] for entry in read_journal(folder)]
    first, second, third = ["approved", "round"], ["deployed", "not deployed", "round"], ["approved", "round"]
    assert whats == ["run began", "deployed", *first, *second, *third, "run ended"]
    found = verify_journal(folder)
    assert (found.sound, found.lines, found.line) == (True, 10, None)
    assert (folder / "journal.key").stat().st_mode & 0o77 == 0
    refused = next(entry for entry in read_journal(folder) if entry["what"] == "not deployed")
    assert refused["facts"] == {"round": 2, "reason": "it rejects too many people"}


def test_a_client_that_fails_is_logged(tmp_path):
    made = federation(rounds=1)

    def wrap(client, answer):
        def fail(request):
            raise RuntimeError("no disk")

        return fail if client == 2 else answer

    serve(made, transport(made, tmp_path, wrap), tmp_path / "server")
    (entry,) = [entry for entry in read_journal(tmp_path / "server") if entry["what"] == "failed"]
    assert entry["facts"]["client"] == 2


def test_every_changed_byte_is_found(written, tmp_path):
    """One flipped bit anywhere: the line it stands in is named, or the one after where the two no longer meet."""
    path = copied(written, tmp_path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    places = [*rng.integers(0, len(whole), 150), len(whole) - 2, 0]
    for place in places:
        altered = bytearray(whole)
        altered[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(altered)
        found = verify_journal(tmp_path)
        line = whole[: int(place) + 1].count(b"\n") + (0 if whole[place : place + 1] == b"\n" else 1)
        assert not found.sound, (place, altered[place])
        assert found.line in (line, line + 1, None)
    path.write_bytes(whole)
    assert verify_journal(tmp_path).sound


@pytest.mark.parametrize("gone", range(LINES))
def test_every_line_that_is_taken_out_is_found(gone, written, tmp_path):
    path = copied(written, tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    found = verify_journal(tmp_path)
    assert not found.sound
    if gone == LINES - 1:
        assert found.fault == f"1 of {LINES} lines were cut off the end"
    else:
        assert (found.line, found.lines) == (gone + 1, gone)
        assert "does not follow the previous line" in found.fault


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(range(LINES)))
def test_every_other_order_is_found(order, written, tmp_path_factory):
    folder = tmp_path_factory.mktemp("order")
    path = copied(written, folder)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[i] for i in order))
    found, same = verify_journal(folder), list(order) == list(range(LINES))
    assert found.sound == same
    if not same:
        assert found.line == 1 + next(i for i in range(LINES) if order[i] != i)


def test_lines_cut_off_the_end_are_found(written, tmp_path):
    """At whichever byte: only a last line that was never finished, which the head does not know, is a crash."""
    path = copied(written, tmp_path)
    whole = path.read_bytes()
    for place in range(1, len(whole), 37):
        path.write_bytes(whole[:place])
        found = verify_journal(tmp_path)
        assert not found.sound and "cut off the end" in found.fault, place
        with pytest.raises(ValueError, match="cut off the end"):
            Journal(tmp_path)  # a server does not go on with it
    path.unlink()
    assert "there is no journal.jsonl" in verify_journal(tmp_path).fault
    with pytest.raises(ValueError, match=f"{LINES} of {LINES} lines were cut off the end"):
        Journal(tmp_path)
    (tmp_path / "journal.head").unlink()
    with pytest.raises(ValueError, match="although the log had begun"):
        Journal(tmp_path)  # no second log begins in its place


def test_an_earlier_end_of_the_log(written, tmp_path):
    """Whoever kept an earlier head can return to it without the key: only a hash noted elsewhere shows it."""
    journal = Journal(tmp_path)
    journal.write("round", run="a", round=1)
    kept = {name: (tmp_path / name).read_bytes() for name in ("journal.jsonl", "journal.head")}
    noted = journal.write("round", run="a", round=2)
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    assert verify_journal(tmp_path).sound
    assert not verify_journal(tmp_path, head=noted).sound


def test_a_line_put_in_twice_or_forged(written, tmp_path):
    path = copied(written, tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], lines[3], *lines[4:]]))
    assert verify_journal(tmp_path).line == 5
    # A whole log by another key, with the old one's public key beside it.
    other = tmp_path / "other"
    Journal(other).write("run began", run="a", identity="b")
    (other / "journal.pub").write_bytes((written / "journal.pub").read_bytes())
    found = verify_journal(other)
    assert (found.line, found.fault) == (1, "its signature is not the server's")
    # With its own public key it is sound, unless the true one was noted.
    (other / "journal.pub").unlink()
    Journal(other)
    assert verify_journal(other).sound
    assert not verify_journal(other, key=(written / "journal.pub").read_text()).sound


def test_a_server_that_rewrites_its_own_history(written, tmp_path):
    """It holds the key, so the log is sound by itself; a head that somebody noted gives it away."""
    noted = verify_journal(written).head
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "journal.key").write_bytes((written / "journal.key").read_bytes())
    journal = Journal(fresh)
    journal.write("run began", run="a", identity="b")
    for number in range(1, LINES):
        journal.write("round", run="a", round=number, heard=4)
    assert verify_journal(fresh).sound
    assert "recorded earlier is that of none of the 8 lines" in verify_journal(fresh, head=noted).fault
    assert verify_journal(written, head=noted).sound


def test_a_crash_in_the_middle_of_a_line(written, tmp_path):
    """The rest of the line is taken away, and the log says so; a crash before the head was written is none."""
    path = copied(written, tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"facts":{"run')
    found = verify_journal(tmp_path)
    assert (found.sound, found.cut_short, found.lines) == (True, True, LINES)
    Journal(tmp_path).write("round", run="a", round=LINES)
    found = verify_journal(tmp_path)
    assert (found.sound, found.cut_short, found.lines) == (True, False, LINES + 2)
    repaired = read_journal(tmp_path)[LINES]
    assert (repaired["what"], repaired["facts"]["bytes"]) == ("repaired", 14)
    # The line is there, the head still the one before.
    head = (tmp_path / "journal.head").read_bytes()
    Journal(tmp_path).write("round", run="a", round=LINES + 1)
    (tmp_path / "journal.head").write_bytes(head)
    assert verify_journal(tmp_path).lines == LINES + 3
    Journal(tmp_path)  # the next server brings the head up to date
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert "1 of 11 lines were cut off the end" in verify_journal(tmp_path).fault


def test_a_line_that_no_reader_gets_through(written, tmp_path):
    path = copied(written, tmp_path)
    path.write_bytes(path.read_bytes() + b"[" * 200_000 + b"\n")
    assert (verify_journal(tmp_path).line, verify_journal(tmp_path).fault) == (
        LINES + 1,
        "it is not a line of this log",
    )


def test_a_log_with_a_changed_line_is_not_continued(written, tmp_path):
    path = copied(written, tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    for other, line in ((lines[3].replace(b'"heard":5', b'"heard":4'), 5), (b"\x00garbage\n", 4)):
        path.write_bytes(b"".join([*lines[:3], other, *lines[4:]]))
        before = path.read_bytes()
        with pytest.raises(ValueError, match=f"line {line} does not follow .* federation verify"):
            Journal(tmp_path)
        assert path.read_bytes() == before
    with pytest.raises(ValueError, match=r"journal.jsonl: line 4 is not a line of this log.*federation verify"):
        read_journal(tmp_path)


def test_a_hash_is_a_hash(written, tmp_path):
    copied(written, tmp_path)
    head = verify_journal(tmp_path).head
    assert verify_journal(tmp_path, head=f" {head.upper()}\n").sound
    with pytest.raises(ValueError, match="head must be 64 hex digits"):
        verify_journal(tmp_path, head="zz")


def test_numbers_that_json_has_no_word_for(tmp_path):
    """An infinite epsilon is one."""
    Journal(tmp_path).write("round", run="a", round=1, epsilon=float("inf"))
    assert read_journal(tmp_path)[0]["facts"]["epsilon"] == "inf"
    assert verify_journal(tmp_path).sound


def test_a_gap_in_the_rounds(tmp_path):
    journal = Journal(tmp_path)
    for number in (1, 2, 2, 3, 5):
        journal.write("round", run="a", round=number)
    found = verify_journal(tmp_path)
    assert (found.line, found.fault) == (5, "round 5 comes after round 3: there is a gap")


def test_a_deployed_model_that_was_replaced(tmp_path):
    made = federation(rounds=2)
    rehearse(made, tmp_path)
    path = tmp_path / "server" / "models" / "000001.bin"
    content = path.read_bytes()
    path.write_bytes((tmp_path / "server" / "models" / "000002.bin").read_bytes())
    assert "model of version 1 is not the one that was deployed" in verify_journal(tmp_path / "server").fault
    path.unlink()
    assert "model of version 1 is missing" in verify_journal(tmp_path / "server").fault
    path.write_bytes(content)
    assert verify_journal(tmp_path / "server").sound


def test_the_key_is_needed_to_go_on(written, tmp_path):
    copied(written, tmp_path)
    (tmp_path / "journal.key").unlink()
    with pytest.raises(ValueError, match=r"journal.key is missing, and journal.jsonl can only be continued with that"):
        Journal(tmp_path)
    (tmp_path / "journal.pub").unlink()
    with pytest.raises(ValueError, match="--key"):
        verify_journal(tmp_path)
    with pytest.raises(ValueError, match="key must be 64 hex digits"):
        verify_journal(tmp_path, key="abc")
    (tmp_path / "journal.head").write_text("{}")
    assert (
        "journal.head is missing or cannot be read"
        in verify_journal(tmp_path, key=(written / "journal.pub").read_text()).fault
    )


@pytest.fixture
def continued(written, tmp_path):
    """A log that continues that of an archived run, which continues another: the folder, and the archives, by name."""
    folder = tmp_path / "server"
    copied(written, folder)
    names = []
    for version in (3, 7):
        names.append(archive(folder, version).name)
        Journal(folder).write("round", run=names[-1], round=1)
    return folder, names


def test_a_new_run_follows_the_old_log(written, continued):
    folder, (first, second) = continued
    head = verify_journal(folder.with_name(second)).head
    assert read_journal(folder)[0]["facts"] == {"folder": second, "head": head}
    found = verify_journal(folder, key=(written / "journal.pub").read_text())
    assert found.sound and found.lines == 2 and found.archives == {second: 2, first: LINES}
    assert verify_journal(folder, head=verify_journal(written).head).sound  # a line of the oldest
    assert "none of the 12 lines" in verify_journal(folder, head="0" * 64).fault
    assert json.loads((folder / "run.json").read_text()) == {"version": 7}


def test_an_archived_log_that_is_missing_or_swapped_is_found(written, continued):
    folder, (first, second) = continued
    older, newer = folder.with_name(first), folder.with_name(second)
    whole = {place: (place / "journal.jsonl").read_bytes() for place in (older, newer)}
    newer.rename(folder.with_name("hidden"))
    assert verify_journal(folder).fault.startswith(f"it continues the log in {second}, which is missing in ")
    folder.with_name("hidden").rename(newer)
    older.rename(folder.with_name("hidden"))
    assert f"the log in {first}, which is missing" in verify_journal(folder).fault
    copied(newer, older)  # another log of the same server, sound by itself
    assert f"the log in {first} does not end with the line" in verify_journal(folder).fault
    Journal(folder.with_name("other")).write("run began", run="a", identity="b")
    copied(folder.with_name("other"), older)
    assert verify_journal(folder).fault == f"in {first}, which it continues, line 1: its signature is not the server's"
    copied(folder.with_name("hidden"), older)
    assert verify_journal(folder).sound
    (older / "journal.jsonl").write_bytes(whole[older].replace(b'"heard":5', b'"heard":6', 1))
    assert f"in {first}, which it continues, line 2: " in verify_journal(folder).fault
    (older / "journal.jsonl").write_bytes(whole[older])
    Journal(older).write("round", run="a", round=LINES)  # nobody writes there anymore
    assert f"the log in {first} does not end with the line" in verify_journal(folder).fault


@pytest.mark.parametrize("at", [1, 2])
def test_a_new_run_interrupted_while_it_begins_continues_the_log(written, tmp_path, monkeypatch, at):
    """A crash before, or between, the two renames."""
    folder, done, rename = tmp_path / "server", [], os.rename
    copied(written, folder)

    def crash(*names):
        done.append(names)
        if len(done) == at:
            raise KeyboardInterrupt
        rename(*names)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(archives.os, "rename", crash)
        archive(folder, 3)
    assert folder.exists() == (at == 1)
    finish_archive(folder)
    if at == 1:
        archive(folder, 3)
    found = verify_journal(folder, key=(written / "journal.pub").read_text())
    assert found.sound and list(found.archives.values()) == [LINES]


def test_a_log_whose_key_is_lost_is_not_left_behind(written, tmp_path):
    copied(written, tmp_path / "server")
    (tmp_path / "server" / "journal.key").unlink()
    with pytest.raises(ValueError, match=r"journal\.key is missing"):
        archive(tmp_path / "server", 0)
    assert (tmp_path / "server" / "journal.jsonl").exists()


def test_the_command_names_the_archives(continued, monkeypatch):
    folder, (first, second) = continued
    app = folder.parent / "app"
    (app / ".federation").mkdir(parents=True)
    for place in folder.parent.glob("server*"):
        place.rename(app / ".federation" / place.name)
    words = ["federation", "verify", "--app", str(app)]
    told = CliRunner().invoke(commands, words)
    assert told.exit_code == 0 and f"It continues the log in {first}, whose {LINES} lines are" in told.output
    shutil.rmtree(app / ".federation" / second)
    told = CliRunner().invoke(commands, words)
    said = " ".join(told.output.split())
    assert told.exit_code == 1 and f"the log was altered: it continues the log in {second}, which is missing" in said


def test_the_log_goes_on_after_a_resume(tmp_path):
    made = federation(rounds=2)
    rehearse(made, tmp_path)
    noted = verify_journal(tmp_path / "server").head
    serve(made, transport(made, tmp_path), tmp_path / "server", resume=True, rounds=3)
    found = verify_journal(tmp_path / "server", head=noted)
    assert found.sound
    assert [entry["facts"]["round"] for entry in read_journal(tmp_path / "server") if entry["what"] == "round"] == [
        1,
        2,
        3,
    ]
