"""A model reaches the world once under each version, and never under a version of another model's."""

import http.server
import json
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from performative.live.sources.deployment import Deployed, VersionError
from performative.live.sources.publish import Callback, Endpoint, ModelFile, Publisher, PublishError

THETA = np.asarray([0.1, -2.5e-300, 1 / 3])
SECRET = "s3cret-token"


def deployed(version, theta=THETA, round=0):
    return Deployed(version, theta, round)


class Service:
    """A scoring service on this machine. `answers` are the statuses to give, then 200; `seen` is what came."""

    def __init__(self, *answers):
        self.answers, self.seen = list(answers), []
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.seen.append((dict(self.headers), json.loads(body)))
                status = service.answers.pop(0) if service.answers else 200
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/models"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


class TestDeployed:
    def test_json_names_every_array_and_loses_no_bit(self):
        theta = {"layers": [{"w": np.float32([[0.1, 2], [3, 4]])}], "b": jnp.asarray(0.25)}
        content = json.loads(deployed(7, theta, 3).to_json())
        assert (content["version"], content["round"]) == (7, 3)
        assert set(content["parameters"]) == {"layers.0.w", "b"}
        np.testing.assert_array_equal(np.float32(content["parameters"]["layers.0.w"]), theta["layers"][0]["w"])
        assert json.loads(deployed(7).to_json())["parameters"]["theta"] == THETA.tolist()

    def test_the_model_cannot_change_afterwards(self):
        mine = THETA.copy()
        record = deployed(1, mine)
        mine[0] = 9.0
        np.testing.assert_array_equal(record.theta, THETA)
        with pytest.raises(ValueError, match="read-only"):
            record.theta[0] = 1.0

    def test_fingerprints_tell_models_apart(self):
        same = deployed(1).fingerprint
        assert deployed(2, THETA.copy(), round=5).fingerprint == same
        others = [THETA.astype(np.float32), THETA[:, None], {"theta": THETA}, THETA + 1e-15, {"w": THETA}]
        prints = [deployed(1, other).fingerprint for other in others]
        # A bare array and a dict with the one name "theta" are the same model to a service.
        assert prints[2] == same
        assert len({same, *prints}) == len(others)

    @pytest.mark.parametrize(("version", "round"), [(-1, 0), (True, 0), (2**53 + 1, 0), (1, -1)])
    def test_odd_versions(self, version, round):
        with pytest.raises(ValueError, match="must be a whole number from 0"):
            deployed(version, THETA, round)

    @pytest.mark.parametrize(
        ("theta", "message"),
        [
            (np.asarray([1.0, np.nan]), "theta must be finite"),
            ({"w": np.asarray(["a"])}, "w must be numeric"),
            ({}, "no model"),
            ({"a.b": np.ones(1), "a": {"b": np.ones(1)}}, "two arrays of theta are called 'a.b'"),
        ],
    )
    def test_odd_models(self, theta, message):
        with pytest.raises(ValueError, match=message):
            deployed(1, theta)


@pytest.fixture(params=["callback", "callback with record", "file", "endpoint"])
def place(request, tmp_path):
    """A publisher, and a function that lists the versions it has published."""
    versions = []
    if request.param == "file":
        path = tmp_path / "made on the way" / "model.json"
        yield ModelFile(path), lambda: [json.loads(path.read_text())["version"]]
    elif request.param == "endpoint":
        with Service() as service:
            yield Endpoint(service.url, SECRET), lambda: [content["version"] for _, content in service.seen]
    else:
        record = tmp_path / "last.json" if "record" in request.param else None
        yield Callback(lambda model: versions.append(model.version), record), lambda: versions


class TestOrder:
    def test_once_and_forwards(self, place):
        publisher, versions = place
        assert isinstance(publisher, Publisher)
        for version, theta in [(0, THETA), (0, THETA.copy()), (3, THETA + 1), (3, THETA + 1), (4, THETA)]:
            publisher.publish(deployed(version, theta))
        assert versions() in ([0, 3, 4], [4])

    def test_no_way_back(self, place):
        publisher, versions = place
        publisher.publish(deployed(5))
        with pytest.raises(VersionError, match=r"version 4 comes before version 5.*new version, 6"):
            publisher.publish(deployed(4))
        with pytest.raises(VersionError, match="version 5 is published with other parameters"):
            publisher.publish(deployed(5, THETA + 1e-9))
        assert versions() == [5]
        publisher.publish(deployed(6))


def test_a_record_outlives_the_process(tmp_path):
    calls = []
    for _ in range(2):
        Callback(calls.append, tmp_path / "last.json").publish(deployed(5))
    assert len(calls) == 1
    with pytest.raises(VersionError, match="comes before"):
        Callback(calls.append, tmp_path / "last.json").publish(deployed(4))


def test_a_callback_that_raises_has_not_published():
    calls = []

    def once_down(model):
        calls.append(model.version)
        if len(calls) == 1:
            raise ConnectionError("down")

    publisher = Callback(once_down)
    with pytest.raises(ConnectionError, match="down"):
        publisher.publish(deployed(1))
    publisher.publish(deployed(1))
    assert calls == [1, 1]


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path):
    path = tmp_path / "model.json"
    for content in ("{}", "[1]", "not json", '{"version": "x", "fingerprint": ""}'):
        path.write_text(content)
        with pytest.raises(VersionError, match="not a file of this library"):
            ModelFile(path).publish(deployed(1))
        assert path.read_text() == content


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "model.json"
    ModelFile(path).publish(deployed(1))
    (tmp_path / ".model.json.part").write_text('{"version": 2, "par')  # a writer was killed here
    ModelFile(path).publish(deployed(2, jax.numpy.zeros(2)))
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]
    assert json.loads(path.read_text())["parameters"] == {"theta": [0.0, 0.0]}


class TestEndpoint:
    def test_what_the_service_gets(self):
        with Service() as service:
            Endpoint(service.url, SECRET).publish(deployed(2, THETA, 9))
        ((headers, content),) = service.seen
        assert content == json.loads(deployed(2, THETA, 9).to_json())
        assert headers["Authorization"] == f"Bearer {SECRET}" and headers["Content-Type"] == "application/json"
        assert headers["Idempotency-Key"] == f"2-{deployed(2).fingerprint}"

    def test_a_proxy_of_the_environment_never_sees_what_is_for_this_machine(self, monkeypatch):
        monkeypatch.delenv("no_proxy")
        with Service() as proxy, Service() as service:
            for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
                monkeypatch.setenv(name, proxy.url)
            Endpoint(service.url, token=SECRET).publish(deployed(1))
            assert len(service.seen) == 1 and not proxy.seen

    def test_passing_faults_are_tried_again(self):
        with Service(503, 429, 500) as service:
            Endpoint(service.url, pause=0.01).publish(deployed(1))
        assert len(service.seen) == 4
        assert len({headers["Idempotency-Key"] for headers, _ in service.seen}) == 1
        assert "Authorization" not in service.seen[0][0]

    @pytest.mark.parametrize(
        ("answers", "tried", "message"),
        [
            ([401], 1, "401 Unauthorized"),
            ([302], 1, "302 Found.*pass the final url"),
            ([503] * 3, 3, "503.*attempt 3 of 3"),
        ],
    )
    def test_lasting_faults_are_told_without_the_token(self, answers, tried, message):
        with Service(*answers) as service:
            publisher = Endpoint(f"{service.url}?key={SECRET}", SECRET, retries=2, pause=0.01)
            with pytest.raises(PublishError, match=message) as caught:
                publisher.publish(deployed(1))
            assert len(service.seen) == tried
            said = "".join(map(str, (caught.value, caught.value.__cause__, repr(publisher), publisher)))
            assert SECRET not in said and "/models" in said
            publisher.publish(deployed(1))  # it is not taken for published

    def test_nobody_there(self):
        with Service() as service:
            url = service.url
        with pytest.raises(PublishError, match=r"refused.*attempt 2 of 2.*Is the service up"):
            Endpoint(url, retries=1, pause=0.01).publish(deployed(1))

    def test_a_silent_service_is_not_waited_for(self):
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), None) as silent:  # listens and never answers
            url = f"http://127.0.0.1:{silent.server_address[1]}/"
            with pytest.raises(PublishError, match="timed out"):
                Endpoint(url, timeout=0.1, retries=1, pause=0.0).publish(deployed(1))

    def test_a_plain_service_is_no_https_one(self):
        with Service() as service, pytest.raises(PublishError, match=r"(?i)ssl"):
            Endpoint(service.url.replace("http:", "https:"), SECRET, retries=0).publish(deployed(1))
        assert not service.seen

    @pytest.mark.parametrize(
        ("url", "options", "message"),
        [
            ("file:///etc/passwd", {}, "begin with http"),
            ("ftp://host/x", {}, "begin with http"),
            ("http:///x", {}, "and a host"),
            ("https://ann:secret@host/x", {}, "must not contain a user"),
            ("https://host/a b", {}, "percent-encode"),
            ("http://example.org/x", {"token": SECRET}, "plain http"),
            ("https://host/x", {"token": f"{SECRET}\nX: y"}, "token must be printable"),
            ("https://host/x", {"token": ""}, "token must be printable"),
            ("https://host/x", {"timeout": 0.0}, "timeout must be"),
            ("https://host/x", {"retries": -1}, "retries must be"),
        ],
    )
    def test_refused(self, url, options, message):
        with pytest.raises(ValueError, match=message) as caught:
            Endpoint(url, **options)
        assert SECRET not in str(caught.value) and "secret" not in str(caught.value)
