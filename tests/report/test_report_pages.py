"""Pages hold the numbers that they are made from, as text that stays text, and need nothing from outside."""

import json
import re
from html.parser import HTMLParser

import made_results
import numpy as np
import pytest
from made_results import BAD, split
from typer.testing import CliRunner

import performative as pf
from performative.cli import app
from performative.report import gallery
from performative.report import results as reading
from performative.report.curves import MOST_POINTS, curve, digits, kept, packed
from performative.report.run_page import config_lines
from performative.sweep import Sweep


@pytest.fixture
def experiments(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "EXPERIMENTS", tmp_path / "experiments")
    return tmp_path / "experiments"


class Reader(HTMLParser):
    """Elements, addresses and text of a page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.addresses, self.words, self.inside = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.inside.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "srcset", "action")]

    def handle_endtag(self, tag):
        self.inside = self.inside[: len(self.inside) - 1 - self.inside[::-1].index(tag)]

    def handle_data(self, data):
        if not {"script", "style"} & set(self.inside):
            self.words.append(data)


def read(path):
    """The page read as a browser would, with the library taken out; it loads nothing and has our scripts only."""
    text, plots = split(path.read_bytes())
    page = Reader(text)
    assert page.tags.count("script") == 2 and "link" not in page.tags and "iframe" not in page.tags
    assert all(address.startswith(("data:image/svg+xml;base64,", "#")) for address in page.addresses)
    urls = re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]+[^\s\"')]*", text)
    assert set(urls) <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "default-src 'none'" in text and "@import" not in text and "url(" not in text
    return " ".join(" ".join(page.words).split()), plots, text


def test_points_that_are_kept():
    np.testing.assert_array_equal(kept(7), np.arange(7))
    chosen = kept(100_000)
    assert chosen[0] == 0 and chosen[-1] == 99_999 and len(chosen) <= MOST_POINTS
    # Even on a plain axis, and ten of them in each decade of a logarithmic one.
    assert np.diff(chosen).max() <= 100_000 / (MOST_POINTS / 2 - 2)
    assert all(np.sum((chosen >= 10**k) & (chosen < 10 ** (k + 1))) >= 9 for k in range(5))


def test_numbers_are_short_and_whole_ones_whole():
    assert digits([1.0, 0.123456789, np.nan, np.inf, 2e-30]) == [1, 0.123457, None, None, 2e-30]
    assert digits(np.arange(3)) == [0, 1, 2] and digits(["a"]) == ["a"]


def test_a_curve_is_mean_and_middle_of_the_repeats():
    values = np.exp(np.random.default_rng(0).normal(size=(5, 4)))
    values[2, 1], values[:, 3] = np.inf, np.nan
    made = curve("c", [0, 10, 20, 30], values)
    assert made.x == [0, 10, 20]
    whole = np.delete(values, 2, axis=0)[:, 1]
    np.testing.assert_allclose(made.y, [values[:, 0].mean(), whole.mean(), values[:, 2].mean()], rtol=1e-5)
    np.testing.assert_allclose(made.low[1], np.quantile(whole, 0.1), rtol=1e-5)
    np.testing.assert_allclose(made.high[2], np.quantile(values[:, 2], 0.9), rtol=1e-5)
    assert curve("c", [0], [[1.0]]).low is None


def test_packed_data_cannot_end_its_element():
    thing = {"<!--": ["</script>", "&lt;", "é"]}
    text = packed(thing)
    assert not set("<>&") & set(text) and json.loads(text) == thing


def test_a_page_has_nowhere_to_upload_to(tmp_path):
    """Plotly's "Share chart" is switched off, and its server is taken out of the script."""
    text = pf.report.write(made_results.history(), tmp_path / "run.html").read_text()
    assert "showSendToCloud: false" in text and 'plotlyServerURL: ""' in text
    assert "plotlyServerURL" in text.split("showSendToCloud: false")[0]  # Plotly still knows the option
    assert not re.findall(r'"https://[^"]*plotly[^"]*/newchart', text)


def test_a_run(tmp_path):
    history = made_results.history()
    path = pf.report.write(history, tmp_path / "run.html")
    words, plots, _ = read(path)
    drawn = {view["label"]: view for views in plots for view in views}
    for name in ("distance to the stable point", "performative risk", "consensus error", "samples drawn"):
        assert drawn[name]["series"][0]["name"] == "p_fedavg"
    (line,) = drawn["distance to the stable point"]["series"]
    np.testing.assert_allclose(line["y"], history["distance_to_stable"].mean(axis=0), rtol=1e-5)
    # Against what was spent: 40 samples for every 10 rounds.
    assert line["along"] == {"samples drawn": [4 * x for x in line["x"]]}
    assert drawn["performative risk"]["series"][0]["along"] == {"samples drawn": [400, 800, 1200]}
    assert "along" not in drawn["samples drawn"]["series"][0]
    assert drawn["distance to the stable point"]["log"] == "y" and drawn["samples drawn"]["log"] == ""
    assert drawn["performative risk"]["series"][0]["x"] == [100, 200, 300]
    assert drawn["consensus error"]["series"][0]["x"][0] == 10  # nothing was sent in round 0
    assert "simulated time" not in drawn  # nothing but zeros
    assert [one["name"] for one in drawn["parameters"]["series"]] == ["theta[0]", "theta[1]"]
    real, meant = drawn["clients"]["series"]
    np.testing.assert_allclose(real["y"], history.participation.mean(axis=0), rtol=1e-5)
    assert meant["y"] == [0.5, 0.3, 0.2]
    final = history["distance_to_stable"][:, -1]
    for text in ("seed 7", "float32", "completed", "SchemeOne", f"{final.mean():.4g}", f"{final.std(ddof=1):.4g}"):
        assert text in words


def test_a_run_that_diverged_and_one_that_is_private(tmp_path):
    told = {"epsilon": 1.25, "delta": 1e-5, "unit": "example", "why": [], "assumes": ["rows differ"], "stopped": None}
    history = made_results.history(diverged=True, privacy=told)
    words, plots, _ = read(pf.report.write(history, tmp_path / "run.html"))
    assert "1 of 6 repeats diverged" in words and "first non-finite in round 50" in words
    assert "5 of 6 repeats" in words  # of the final values
    assert "epsilon 1.25" in words and "rows differ" in words
    line = plots[0][0]["series"][0]
    np.testing.assert_allclose(line["y"][-1], history["distance_to_stable"][1:, -1].mean(), rtol=1e-5)


def test_a_large_model_and_many_clients(tmp_path):
    import dataclasses

    rng, few = np.random.default_rng(0), made_results.history()
    history = dataclasses.replace(
        few, theta={"w": rng.normal(size=(6, 31, 30))}, weights=np.full(5000, 1 / 5000),
        participation=rng.random((6, 5000)),
    )  # fmt: skip
    words, plots, _ = read(pf.report.write(history, tmp_path / "run.html"))
    drawn = {view["label"]: view for views in plots for view in views}
    norm = np.linalg.norm(history.theta["w"], axis=2).mean(axis=0)
    np.testing.assert_allclose(drawn["norm"]["series"][0]["y"], norm, rtol=1e-5)
    assert all(len(one["y"]) <= MOST_POINTS for one in drawn["clients"]["series"])
    assert "of 5,000 drawn" in drawn["clients"]["x"]
    always = dataclasses.replace(history, participation=None, theta=few.theta[:, -1:])
    words, plots, _ = read(pf.report.write(always, tmp_path / "run.html"))
    assert "Every client takes part" in words
    assert not {"norm", "parameters", "clients"} & {view["label"] for views in plots for view in views}


def test_an_algorithm_in_lines():
    config = {"part": "Algorithm", "rate": {"function": "f", "code": "d", "holds": [2.0]}, "slot": {"part": "Mean"}}
    assert config_lines(config) == ["Algorithm", "  rate: f", "    holds: [2.0]", "  slot: Mean"]


def test_a_saved_run_is_the_same_page(tmp_path):
    history = made_results.history()
    file = history.save(tmp_path / "h.nc")
    one = pf.report.write(history, tmp_path / "a.html", title="T").read_bytes()
    two = pf.report.write(file, tmp_path / "b.html", title="T").read_bytes()
    assert one == two
    assert "h: a run of p_fedavg" in pf.report.write(str(file), tmp_path / "c.html").read_text()


def test_a_sweep(tmp_path):
    found = made_results.sweep()
    words, plots, text = read(pf.report.write(found, tmp_path / "sweep.html"))
    best, _ = found.best()
    assert best == {"rate": 0.1, "local_steps": 5}
    assert f"rate {best['rate']}, local_steps {best['local_steps']}" in words and text.count(">best<") == 1
    assert re.search(r'data-key="1" data-tags="0,1" class="best"', text)
    curves = plots[0][0]
    assert curves["label"] == "distance to the stable point" and [one["key"] for one in curves["series"]] == list(
        "012345"
    )
    # The first swept name has the color, the second the dash.
    assert [(one["color"], one["dash"]) for one in curves["series"]] == [(r, e) for r in range(3) for e in range(2)]
    against = {view["label"]: view for view in plots[1]}
    rate = {one["name"]: one for one in against["rate"]["series"]}
    assert rate["local_steps 5"]["x"] == [0.1, 0.2, 0.4]
    np.testing.assert_allclose(rate["local_steps 5"]["y"], found.scores()[1::2], rtol=1e-5)
    cells = [float(value) for value in re.findall(r'data-value="([\d.e-]+)">[\d.e-]+<small>', text)]
    np.testing.assert_allclose(cells[::3], found.scores(), rtol=1e-12)


def test_a_sweep_with_divergence(tmp_path):
    found = made_results.sweep(diverged=1)
    words, _, text = read(pf.report.write(found, tmp_path / "sweep.html"))
    assert re.search(r'data-key="0" data-tags="0,0" class="best"', text) and "1 of 6" in words
    assert text.count('data-value="Infinity">diverged') == 3
    lost = [made_results.history(diverged=True) for _ in found.histories]
    words, *_ = read(pf.report.write(Sweep(found.over, found.settings, lost, 1), tmp_path / "s.html"))
    assert "Every setting diverged" in words


def test_a_gallery(tmp_path, experiments):
    folder = made_results.results(tmp_path / "results", experiments)
    words, plots, text = read(pf.report.write(folder, tmp_path / "gallery.html"))
    assert len(plots) == 12 and text.count("<article") == 4 and text.count('data-entry="claim"') == 8
    lines, bars, points = (plot[0] for plot in plots[:3])
    assert (lines["kind"], bars["kind"], points["kind"]) == ("lines", "bars", "points")
    assert lines["log"] == "xy" and lines["marks"] == [{"name": "floor of noise", "value": 0.05}]
    assert [one["name"] for one in lines["series"]] == ["full", BAD, "static"] == bars["rows"]
    arrays = reading.read_arrays(folder / "p_fedavg" / "fig0" / "data.nc")
    means = arrays["distance"].mean("repeat").values
    np.testing.assert_allclose(lines["series"][1]["y"], means[1], rtol=1e-5)
    assert 4 not in lines["series"][0]["x"] and 4 in lines["series"][1]["x"]  # one series has no value there
    assert (bars["y"], bars["log"]) == ("accuracy once deployed", "y")  # bars lie: their values go along x
    np.testing.assert_allclose(bars["series"][0]["y"], arrays["accuracy"].mean("repeat").values, rtol=1e-5)
    np.testing.assert_allclose(
        points["series"][2]["high"], arrays["final"][2].quantile(0.9, "repeat").values, rtol=1e-5
    )
    for text_there in ("4 experiments, 8 claims", "1 of them are quick runs", "Left open: 2", "by the slope", "0.001"):
        assert text_there in words


def test_without_a_description_the_picture_stands_in(tmp_path, experiments):
    folder = made_results.results(tmp_path / "results", experiments, count=2)
    (experiments / "p_fedavg" / "fig0.toml").unlink()
    (folder / "profl" / "fig1" / "data.nc").unlink()
    (folder / "profl" / "fig1" / "figure.svg").unlink()
    words, plots, text = read(pf.report.write(folder, tmp_path / "gallery.html"))
    assert plots == [] and text.count("data:image/svg+xml;base64,") == 1 and "Title of fig1" in words


def test_the_catalog_is_read_as_it_is():
    from performative.papers import catalog

    assert set(gallery.PAPERS) == set(catalog.PAPERS)
    assert catalog.names()
    for name in catalog.names():
        panels = reading._setup(*name.split("/")).get("panels", [])
        assert [panel["data"] for panel in panels] == [panel.data for panel in catalog.find(name).panels]


@pytest.mark.slow
def test_much_data_is_thinned_further(tmp_path, experiments, monkeypatch):
    folder = made_results.results(tmp_path / "results", experiments, count=2, points=1000)
    _, plots, _ = read(pf.report.write(folder, tmp_path / "gallery.html"))
    before, size = len(plots[0][0]["series"][1]["x"]), len(packed(plots))
    monkeypatch.setattr(gallery, "_MOST_BYTES", size // 3)
    words, plots, _ = read(pf.report.write(folder, tmp_path / "gallery.html"))
    after = len(plots[0][0]["series"][1]["x"])
    assert len(packed(plots)) <= size // 3 and MOST_POINTS / 2 < before <= MOST_POINTS
    told = int(re.search(r"more than (\d+) points", words).group(1))
    assert told / 3 < after <= told < MOST_POINTS


@pytest.mark.slow
def test_fifty_experiments_stay_below_fifteen_megabytes(tmp_path, experiments):
    many = tuple(f"series {i}" for i in range(12))
    folder = made_results.results(tmp_path / "results", experiments, count=50, points=2000, series=many)
    path = pf.report.write(folder, tmp_path / "gallery.html")
    assert 8e6 < path.stat().st_size < 15e6


def test_titles_and_names_stay_text(tmp_path, experiments):
    found = made_results.sweep()
    settings = [{BAD: BAD} for _ in found.settings[:1]]
    odd = Sweep({BAD: [BAD]}, settings, [made_results.history(algorithm=BAD)], 1)
    folder = made_results.results(tmp_path / "results", experiments, count=1)
    for thing in (made_results.history(algorithm=BAD, config={BAD: BAD}), odd, folder):
        words, _, text = read(pf.report.write(thing, tmp_path / "page.html", title=BAD))
        assert words.startswith(BAD) and words.count(BAD) >= 3
        assert '<script>alert("x")' not in text
        assert f"<title>{BAD}" not in text


def test_what_cannot_be_written_or_read(tmp_path):
    history = made_results.history()
    with pytest.raises(ValueError, match="this is a folder; give the name of an HTML file"):
        pf.report.write(history, tmp_path)
    with pytest.raises(ValueError, match="there is no folder"):
        pf.report.write(history, tmp_path / "no" / "page.html")
    with pytest.raises(TypeError, match=r"takes a History, a Sweep, an AuditReport.*got int"):
        pf.report.write(3, tmp_path / "page.html")
    with pytest.raises(FileNotFoundError, match="pass a history"):
        pf.report.write(tmp_path / "gone.nc", tmp_path / "page.html")
    with pytest.raises(ValueError, match=r"found none.*performative reproduce"):
        pf.report.write(tmp_path, tmp_path / "page.html")
    (tmp_path / "text.nc").write_text("no")
    with pytest.raises(ValueError, match=r"is not a history written by History\.save"):
        pf.report.write(tmp_path / "text.nc", tmp_path / "page.html")
    broken = tmp_path / "a" / "b" / "manifest.json"
    broken.parent.mkdir(parents=True)
    for content, message in (("{", "manifest.json: expected the JSON"), ("[]", "expected a JSON object; got list")):
        broken.write_text(content)
        with pytest.raises(ValueError, match=message):
            pf.report.write(tmp_path, tmp_path / "page.html")
    assert not list(tmp_path.glob("*page.html*"))


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_command(tmp_path, experiments):
    file = made_results.history().save(tmp_path / "h.nc")
    folder = made_results.results(tmp_path / "results", experiments, count=1)
    for path, kind in ((file, "run"), (folder, "gallery")):
        out = tmp_path / f"{kind}.html"
        result = invoke("report", path, "--out", out, "--title", "Mine", "--json")
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)
        assert told == {
            "status": "completed", "kind": kind, "path": str(path), "out": str(out), "bytes": out.stat().st_size,
        }  # fmt: skip
        assert read(out)[0].startswith("Mine")


@pytest.mark.parametrize(
    ("path", "out", "message"),
    [
        ("gone.nc", "page.html", "there is no such file or folder"),
        ("audit.json", "page.html", "pass the folder that was audited"),
        ("text.txt", "page.html", "pass a history (.nc)"),
        ("text.nc", "page.html", "is not a history"),
        (".", "page.html", "found none"),
        ("text.nc", "page.pdf", "ends in .html"),
        ("text.nc", "no/page.html", "there is no folder"),
        ("logs", "page.html", "data.csv or data.parquet"),
    ],
)
def test_bad_input_ends_with_two_and_writes_nothing(tmp_path, path, out, message):
    for name in ("audit.json", "text.txt", "text.nc"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "deployments.csv").write_text("deployment,theta_x\n0,1\n1,2\n")
    result = invoke("report", tmp_path / path, "--out", tmp_path / out, "--json")
    assert result.exit_code == 2
    assert message in json.loads(result.stdout)["error"]["message"]
    assert not (tmp_path / "page.html").exists() and not (tmp_path / "page.pdf").exists()


def test_an_audit_by_command(tmp_path):
    """The words of the static page, the numbers of the report in the plots."""
    from performative import audit

    folder = made_results.logs(tmp_path / "logs")
    result = invoke("report", folder, "--out", tmp_path / "audit.html", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["kind"] == "audit"
    words, plots, _ = read(tmp_path / "audit.html")
    report = audit.audit_logs(folder)
    assert " ".join(report.verdict.split()) in words.replace("\u00a0", " ") and BAD in words
    drawn = {view["label"]: view for views in plots for view in views}
    assert {"p-values", "directions", "sensitivity", "distances", "models"} <= set(drawn)
    np.testing.assert_allclose(drawn["models"]["series"][0]["y"], report.logs.deployments.theta[:, 0], rtol=1e-5)
    _, *p = drawn["p-values"]["series"][0]["y"]  # all together come first
    assert p == digits(max(one.by_drift["none"].p_value, 1e-6) for one in report.clients)
    exact = drawn["sensitivity"]["series"][0]
    np.testing.assert_allclose(exact["y"], [one.response.sensitivity for one in report.clients], rtol=1e-5)
    assert pf.report.write(report, tmp_path / "again.html").read_bytes() == (tmp_path / "audit.html").read_bytes()
