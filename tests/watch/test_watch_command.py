"""`performative watch`: a folder read once or followed, a page in a browser, a webhook."""

import http.server
import json
import shutil
import socket
import threading
import time
import urllib.request

import pytest
from batches_to_watch import as_csv, batches
from typer.testing import CliRunner

import performative as pf
from performative.cli.app import app
from performative.watch.following import Follower
from performative.watch.page import content, page
from performative.watch.serving import make_app
from performative.watch.webhook import Webhook

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
BAD = "<img src=x onerror=alert(1)>"


@pytest.fixture
def rows(tmp_path):
    """Forty batches of people who react, and one that cannot be read."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for t, (columns, facts) in enumerate(batches(40, 0.9, rows=40)):
        (folder / f"batch-{t}.csv").write_text(as_csv(columns, facts))
    (folder / "broken.csv").write_text("income,theta_income\nmuch,1\n")
    return folder


def command(*arguments):
    return CliRunner().invoke(app, ["watch", *map(str, arguments)])


def test_once_reads_all_and_tells(rows, tmp_path):
    first = command(rows, "--state", tmp_path / "state", "--once", "--drift", "none", "--json")
    told = json.loads(first.stdout)
    assert first.exit_code == 0 and told["status"] == "completed" and told["reacts"] and told["looks"] == 40
    assert told["input"]["quarantined"] == {"type": 1} and "quarantined: broken.csv" in first.stderr
    assert "alarm: reaction" in first.stderr
    again = command(rows, "--state", tmp_path / "state", "--once")
    assert again.exit_code == 0 and "The data react" in again.stdout and "alarm" not in again.stderr
    assert pf.watch(tmp_path / "state").tally.looks == 40


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["nowhere", "--state", "s"], "no such folder"),
        ([".", "--state", "nowhere/s"], "--state"),
        ([".", "--state", "s", "--once", "--port", "8000"], "--once"),
        ([".", "--state", "s", "--once", "--every", "1"], "--every has no effect with --once"),
        ([".", "--state", "s", "--host", "0.0.0.0"], "--host is the address of a page; it requires --port"),
        ([".", "--state", "s", "--webhook", "ftp://x"], "http"),
        ([".", "--state", "s", "--alpha", "2"], "alpha"),
    ],
)
def test_wrong_commands_say_why(arguments, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = command(*arguments)
    assert found.exit_code == 2 and match in found.stderr and "Traceback" not in found.output


class Listener(http.server.BaseHTTPRequestHandler):
    """Refuses the first `refusals` calls, then takes what comes."""

    def do_POST(self):
        heard = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.heard.append((self.headers["Idempotency-Key"], heard))
        self.send_response(500 if len(self.server.heard) <= self.server.refusals else 204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def listener():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    server.heard, server.refusals = [], 0
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def url(server):
    return f"http://127.0.0.1:{server.server_address[1]}/"


def test_a_webhook_is_told_once_and_again_until_it_hears(rows, tmp_path, listener):
    listener.refusals = 4
    hook = Webhook(url(listener), timeout=5.0, tries=2, pause=0.0)
    state = tmp_path / "state"
    follower = Follower(pf.watch(drift="none"), rows, state, hook)
    follower.pass_over(once=True)
    assert follower.watch.tally.looks == 40
    keys = [key for key, _ in listener.heard]
    assert keys == ["reaction"] * 5  # refused four times, then taken
    assert listener.heard[-1][1]["alarm"]["kind"] == "reaction"
    again = Follower(pf.watch(state), rows, state, hook)
    again.pass_over(once=True)
    assert len(listener.heard) == 5


def test_a_webhook_that_is_not_there_stops_nothing(rows, tmp_path):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: refused at once
        hook = Webhook(f"http://127.0.0.1:{held.getsockname()[1]}/", timeout=0.2, tries=1)
        follower = Follower(pf.watch(drift="none"), rows, tmp_path / "state", hook)
        follower.pass_over(once=True)
    assert follower.watch.tally.looks == 40 and follower.watch.alarms.waiting()


def test_a_page_escapes_what_others_wrote():
    watch = pf.watch(drift="none")
    watch.update({BAD: [1.0, 2.0], "client": [BAD, BAD]}, theta={BAD: 1.0})
    watch.update({"x": [1.0]}, theta={BAD: 1.0}, id=BAD)
    text = page(watch.report().to_dict(), BAD, 1.0)
    assert BAD not in text and "&lt;img" in text


def test_an_empty_watch_has_a_page():
    assert "No reaction has been shown" in content(pf.watch().report().to_dict())


@pytest.fixture
def served(rows, tmp_path):
    """The page at an address of its own."""
    uvicorn = pytest.importorskip("uvicorn", reason="needs uvicorn")
    follower = Follower(pf.watch(drift="none"), rows, tmp_path / "state")
    config = uvicorn.Config(make_app(follower, "Watching rows", 0.2), port=0, log_level="error", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield follower, f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def test_the_page_is_read_only_and_says_what_json_says(served):
    follower, base = served
    follower.pass_over(once=True)
    with urllib.request.urlopen(f"{base}/report.json") as answer:
        told = json.load(answer)
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert told["looks"] == 40 and told["reacts"] is True
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"{base}/", data=b"x")
    with urllib.request.urlopen(f"{base}/health") as answer:
        assert json.load(answer) == {"looks": 40}


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, chromium-browser or google-chrome")
def test_the_page_renews_itself_in_a_browser(served):
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    follower, base = served
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab, wrong = browser.new_page(), []
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        tab.on("request", lambda request: None if request.url.startswith(base) else wrong.append(request.url))
        tab.goto(f"{base}/")
        assert "No reaction has been shown" in tab.text_content(".verdict")
        follower.pass_over(once=True)
        tab.wait_for_selector(".verdict.warning")
        assert "The data react" in tab.text_content(".verdict") and tab.query_selector("svg polyline")
        tab.wait_for_selector("#content:has-text('broken.csv')")
        # Browsers ask for an icon by themselves.
        assert not [text for text in wrong if "404" not in text and "favicon" not in text]
        browser.close()
