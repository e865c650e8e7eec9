"""A federated audit: sums of members' logs say what all rows together say, and no row leaves."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from performative.audit.report import audit_logs, audit_summaries
from performative.cli.app import app as cli
from performative.live import InProcess, Member, ask_for_sums, load, read_journal, verify_journal
from performative.live import app as apps
from performative.live.app_audit import audit_app, rehearse_audit
from performative.live.loopback.commands import FederationError
from performative.live.wire import decode, encode

TOML = """
[problem]
loss = "squared"
[problem.population]
name = "Gaussian"
mean = [[1.0, 0.5], [2.0, 1.0], [3.0, 0.0]]
sensitivity = [0.3, 0.9, 0.6]
scale = 1.0
[algorithm]
recipe = "p_fedavg"
rate = 0.1
batch = { name = "Fixed", n = 4 }
[run]
rounds = 2
dtype = "float64"
[federation]
timeout = 60
[audit]
path = "bank-{client}"
"""
AUDIT = '[model]\nloss = "squared"\n[clip]\nf0 = [-10, 20]\nf1 = [-10, 20]\n'


def banks(folder, deployments=10, rows=60, toml=TOML):
    """An app folder, each bank's logs beside it, and the logs of all."""
    apps.write_app(folder, 3)
    (folder / "federation.toml").write_text(toml)
    rng = np.random.default_rng(3)
    theta = 2.0 * rng.normal(size=(deployments, 2)) + 5
    models = pd.DataFrame(
        {"deployment": [f"v{t}" for t in range(deployments)], "theta_f0": theta[:, 0], "theta_f1": theta[:, 1]}
    )
    together = []
    for bank, strength in enumerate((0.3, 0.9, 0.6)):
        z = rng.normal(size=(deployments, rows, 2)) + strength * theta[:, None]
        frame = pd.DataFrame({"deployment": np.repeat(models.deployment, rows), "f0": z[..., 0].ravel(),
                              "f1": z[..., 1].ravel()})  # fmt: skip
        _write(folder / "data" / f"bank-{bank}", models, frame)
        together.append(frame.assign(client=str(bank)))
    _write(folder / "all", models, pd.concat(together))
    return folder


def _write(place, models, frame):
    place.mkdir(parents=True)
    models.to_csv(place / "deployments.csv", index=False)
    frame.to_csv(place / "data.csv", index=False)


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    return banks(tmp_path_factory.mktemp("audited") / "app")


@pytest.fixture
def copy(app, tmp_path):
    return shutil.copytree(app, tmp_path / "app")


def check_same(report, central):
    assert report.verdict == central.verdict and report.effect is True
    assert report.p_value == pytest.approx(central.p_value, rel=1e-9)
    for one, other in zip(report.clients, central.clients, strict=True):
        assert (one.name, one.reacts) == (other.name, other.reacts)
        np.testing.assert_allclose(one.response.B, other.response.B, rtol=1e-9)
    np.testing.assert_allclose(report.prospect.outlook.stable, central.prospect.outlook.stable, rtol=1e-9)


def test_the_verdict_is_that_of_all_rows(app):
    sums, told = rehearse_audit(app, app / "data")
    assert list(told["files"]) == ["0", "1", "2"] and not told["missing"]
    check_same(audit_summaries(sums), audit_logs(app / "all"))


@pytest.mark.slow
def test_the_command_writes_a_page_and_names_who_is_missing(copy, tmp_path):
    (copy / "data" / "bank-1" / "data.csv").write_text("deployment,f0,f1\nv0,Ada Lovelace,1\n")
    shutil.rmtree(copy / "data" / "bank-2")
    out = tmp_path / "out"
    words = ["federation", "audit", "--here", "--app", str(copy), "--data", str(copy / "data"), "--out", str(out)]
    ended = CliRunner().invoke(cli, words)
    assert ended.exit_code == 0, ended.output
    text = " ".join(ended.output.split())
    assert "1 is excluded: the client's logs cannot be summed; the client's own log has the details." in text
    assert "2 is excluded: there are no logs path = 'bank-{client}' in the client's folder" in text
    assert "Ada" not in ended.output  # what the rows hold stays with the bank
    assert (out / "audit.html").exists() and sorted(path.name for path in out.iterdir()) == ["audit.html", "audit.json"]
    ended = CliRunner().invoke(cli, [*words, "--json"])
    found = json.loads(ended.stdout)
    assert found["heard"] == ["0"] and set(found["missing"]) == {"1", "2"}


def test_nobody_heard_is_a_failure_with_its_cause(copy):
    shutil.rmtree(copy / "data")
    ended = CliRunner().invoke(cli, ["federation", "audit", "--here", "--app", str(copy)])
    assert ended.exit_code == 1 and "no member's sums are usable: 0 is excluded: there are no logs" in " ".join(
        ended.output.split()
    )


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('[audit]\npath = ""', "path must name a folder or a file of logs"),
        ('[audit]\npath = "a"\nepsilon = 1.0', "epsilon and delta go together"),
        ('[audit]\npath = "a"\nleast = 0', "least must be a whole number >= 1"),
        ('[audit]\npath = "a"\nmap = "none.toml"', "there is no file 'none.toml' next to federation.toml"),
        ('[audit]\nplace = "a"', "unknown key 'place'"),
        ("", "federation.toml has no [audit]"),
    ],
)
def test_wrong_tables_are_named(copy, table, told):
    toml = (copy / "federation.toml").read_text()
    (copy / "federation.toml").write_text(toml[: toml.index("[audit]")] + table)
    ended = CliRunner().invoke(cli, ["federation", "audit", "--here", "--app", str(copy)])
    assert ended.exit_code == 2 and told in " ".join(ended.output.split()), ended.output


def asked(app, spoil=None, folder=None):
    """The members of an app, one of them with answers that are changed on their way."""
    made = load(app / "federation.toml")
    place = folder or app / "records"
    answers = {i: Member(made, i, place / "clients" / str(i), app / "data").answer for i in range(made.clients)}
    honest = answers[1]
    if spoil is not None:
        answers[1] = lambda request: spoil(*decode(honest(request)))
    transport = InProcess(answers)
    try:
        return ask_for_sums(made, transport, place / "server"), place
    finally:
        transport.close()


def edited(**facts):
    def spoil(about, arrays):
        header = json.loads(arrays["header"].tobytes()) | facts
        return encode(about, arrays | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)})

    return spoil


def named_as_another(about, arrays):
    text = arrays["header"].tobytes().replace(b'"clients": ["1"]', b'"clients": ["0"]')
    return encode(about, arrays | {"header": np.frombuffer(text, np.uint8)})


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda about, arrays: encode(about | {"request": "0"}, arrays), "it answers another request"),
        (lambda about, arrays: encode(about | {"mark": "0"}, arrays), "computed with a different [audit]"),
        (lambda about, arrays: encode(about, arrays | {"labeled.mean": arrays["labeled.mean"] * np.nan}), "non-finite"),
        (lambda about, arrays: encode(about, arrays | {"labeled.count": -arrays["labeled.count"]}), "negative counts"),
        (edited(format=9), "has format 9"),
        (edited(parts={}), "is not a file of moments"),
        (lambda about, arrays: encode(about, {"header": arrays["header"]}), "is not a file of moments"),
        (named_as_another, "it reports '0', as 0 does"),
        (lambda about, arrays: b"", "it cannot be read"),
    ],
)
def test_spoilt_sums_are_left_out_by_name(copy, spoil, told):
    found, _ = asked(copy, spoil)
    assert list(found["files"]) == ["0", "2"] and told in found["missing"]["1"]


def test_what_left_is_written_down_on_both_sides(copy):
    _, place = asked(copy)
    (line,) = [line for line in read_journal(place / "server") if line["what"] == "audited"]
    assert line["facts"]["heard"] == ["0", "1", "2"] and verify_journal(place / "server").sound
    sent = json.loads((place / "clients" / "1" / "audits.jsonl").read_text())
    assert sent["rows"] == 600 and sent["promise"] is None


@pytest.mark.slow
def test_an_answer_with_noise_is_made_once(copy):
    (copy / "audit.toml").write_text(AUDIT)
    toml = (copy / "federation.toml").read_text()
    (copy / "federation.toml").write_text(toml + 'map = "audit.toml"\nepsilon = 8.0\ndelta = 1e-6\n')
    answers = []
    for _ in range(2):
        found, place = asked(copy)
        answers.append([Path(file).read_bytes() for file in found["files"].values()])
        assert not found["missing"]
    assert answers[0] == answers[1]
    assert len((place / "clients" / "1" / "audits.jsonl").read_text().splitlines()) == 1
    # Other settings are another promise.
    (copy / "audit.toml").write_text(AUDIT.replace("20", "25"))
    found, _ = asked(copy)
    assert [Path(file).read_bytes() for file in found["files"].values()] != answers[0]


def test_another_map_at_the_server_is_refused(copy, tmp_path):
    made = load(copy / "federation.toml")
    (copy / "federation.toml").write_text((copy / "federation.toml").read_text() + "least = 1\n")
    bold = load(copy / "federation.toml")
    members = {i: Member(made, i, tmp_path / str(i), copy / "data").answer for i in range(3)}
    found = ask_for_sums(bold, InProcess(members), tmp_path / "server")
    assert not found["files"] and "the server's [audit] or its map differs" in found["missing"]["0"]


def test_an_app_that_is_down_or_of_old_is_named(copy):
    with pytest.raises(FederationError, match="nothing is running in"):
        audit_app(copy)
    text = (copy / "pyproject.toml").read_text().replace('task = ""\n', "")
    (copy / "pyproject.toml").write_text(text)
    with pytest.raises(ValueError, match="add task"):
        audit_app(copy)


@pytest.mark.slow
def test_over_flower_the_verdict_is_that_of_all_rows(copy, tmp_path):
    pytest.importorskip("flwr", reason="the extra performative[flower] is not installed")
    apps.up(copy, apps.load_app(copy), copy / "data")
    try:
        words = ["federation", "audit", "--app", str(copy), "--out", str(tmp_path / "out"), "--json"]
        ended = CliRunner().invoke(cli, words)
        found = json.loads(ended.stdout)
        assert ended.exit_code == 0 and found["heard"] == ["0", "1", "2"], ended.output
        central = audit_logs(copy / "all")
        assert found["p_value"] == pytest.approx(central.p_value, rel=1e-9)
        assert verify_journal(apps.server_folder(copy)).sound
    finally:
        apps.down(copy)
