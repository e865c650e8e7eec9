"""Models are kept by version, may be refused before they are deployed, and can be returned to."""

import jax
import numpy as np
import pytest
from federations import federation, simulated, transport

import performative as pf
from performative._base.files import write_sealed
from performative.live import app as apps
from performative.live import model_versions, read_events, read_model, read_status, rehearse, rollback, serve
from performative.live.app import write_app
from performative.live.wire import encode, flatten


def test_every_deployed_model_is_kept(tmp_path):
    made = federation(rounds=3)
    live = rehearse(made, tmp_path)
    folder = tmp_path / "server"
    assert model_versions(folder) == [0, 1, 2, 3]
    for version in range(4):
        with made.precision():
            assert np.array_equal(read_model(folder, version, made.ready.start), live.theta[0, version])
    with pytest.raises(ValueError, match=r"no model of version 9 .* the latest there: 0, 1, 2, 3"):
        read_model(folder, 9, live.theta[0, 0])
    assert read_status(folder)["state"] == "completed"


def test_lazy_deployment_has_fewer_versions(tmp_path):
    made = federation(algorithm=pf.p_fedavg(rate=0.1, deploy=pf.Every(2)), rounds=4)
    rehearse(made, tmp_path)
    assert model_versions(tmp_path / "server") == [0, 1, 2]


def test_a_model_that_is_refused_is_not_deployed(tmp_path):
    """Training goes back to the model last deployed; clients are told that their answers were not used."""
    seen = []

    def before_deploy(theta, report):
        seen.append((np.array(theta), report))
        return "it rejects too many people" if report["round"] == 2 else True

    made = federation(rounds=4, before_deploy=before_deploy)
    live = rehearse(made, tmp_path)
    assert np.array_equal(live.theta[0, 1], live.theta[0, 2])
    assert not np.array_equal(live.theta[0, 2], live.theta[0, 3])
    assert np.array_equal(live.theta[0, :2], simulated(made).theta[0, :2])
    (event,) = [event for event in read_events(tmp_path / "server") if event["what"] == "not deployed"]
    assert (event["round"], event["reason"]) == (1, "it rejects too many people")
    assert model_versions(tmp_path / "server") == [0, 1, 2, 3]
    assert {"round", "heard", "rejected", "missing", "levels"} <= seen[0][1].keys()
    assert seen[1][0].shape == (3,)


@pytest.mark.parametrize("verdict", [False, np.bool_(False), "no", np.ones(3), ZeroDivisionError])
def test_what_counts_as_no(verdict, tmp_path):
    def before_deploy(theta, report):
        if isinstance(verdict, type):
            raise verdict("by zero")
        return verdict

    made = federation(rounds=1, before_deploy=before_deploy)
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        live = rehearse(made, tmp_path)
    assert np.all(live.theta == live.theta[:, :1])
    assert "not deployed" in {event["what"] for event in read_events(tmp_path / "server")}


def test_rollback(tmp_path):
    """The next round starts from the old model, under a new version; rounds go on counting."""
    made = federation(rounds=3)
    first = rehearse(made, tmp_path)
    folder = tmp_path / "server"
    assert rollback(made, folder, 1) == 3
    live = serve(made, transport(made, tmp_path), folder, resume=True, rounds=5)
    assert live.rounds.tolist() == [0, 1, 2, 3, 4, 5]
    assert np.array_equal(live.theta[0, :4], first.theta[0])
    assert [event["what"] for event in read_events(folder)] == ["rollback"]
    # The model that was ready and never deployed keeps its number, 3; the old one is deployed under the next.
    with made.precision():
        kept = [read_model(folder, version, made.ready.start) for version in range(6)]
    assert np.array_equal(kept[3], first.theta[0, 3])
    assert np.array_equal(kept[4], first.theta[0, 1])
    assert np.array_equal(kept[5], live.theta[0, 4])
    with pytest.raises(ValueError, match="no model of version 77"):
        rollback(made, folder, 77)


def test_the_status_names_the_version_of_a_rollback(tmp_path):
    made, app = federation(rounds=1), tmp_path / "app"
    write_app(app, 2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(apps, "server_folder", lambda app: tmp_path / "server")
        rehearse(made, tmp_path)
        rollback(made, tmp_path / "server", 0)
        lines = apps.status_lines(apps.status(app))
    assert "  round 2: rollback: to version 0" in lines
    assert apps._result(tmp_path / "server", read_status(tmp_path / "server"))["lines"] == [
        f"1 round is done; the model is version 1, in {tmp_path / 'server' / 'models'}.",
        "rollback: once",
    ]


def test_rollback_to_the_model_that_is_deployed(tmp_path):
    """No number stands for two models, whatever is returned to."""
    made = federation(rounds=3)
    first, folder = rehearse(made, tmp_path), tmp_path / "server"
    rollback(made, folder, 2)
    told = []
    serve(made, transport(made, tmp_path), folder, resume=True, rounds=4, on_round=told.append)
    with made.precision():
        kept = {v: read_model(folder, v, made.ready.start) for v in model_versions(folder)}
    assert np.array_equal(kept[2], first.theta[0, 2])
    assert np.array_equal(kept[3], first.theta[0, 3])
    assert np.array_equal(kept[told[-1]["version"]], first.theta[0, 2])


def test_rollback_reaches_the_world_at_once(tmp_path):
    """Also where models are deployed every other round only."""
    made = federation(algorithm=pf.p_fedavg(rate=0.1, deploy=pf.Every(2)), rounds=3)
    first, folder, told = rehearse(made, tmp_path), tmp_path / "server", []
    rollback(made, folder, 0)
    serve(made, transport(made, tmp_path), folder, resume=True, rounds=4, on_round=told.append)
    with made.precision():
        assert np.array_equal(read_model(folder, told[-1]["version"], made.ready.start), first.theta[0, 0])


def test_a_run_that_diverged_can_be_rescued(tmp_path):
    """The model that left all bounds is not taken; after a rollback the run goes on."""
    made = federation(algorithm=pf.p_fedavg(rate=30.0, deploy="round"), rounds=20)
    with pytest.warns(UserWarning, match=r"run-diverged"):
        live, folder = rehearse(made, tmp_path), tmp_path / "server"
    assert live.status == "diverged"
    assert np.all(np.isfinite(live.theta))
    assert read_events(folder)[-1]["what"] == "diverged"
    done = int(live.rounds[-1])
    rollback(made, folder, 0)
    again = serve(made, transport(made, tmp_path), folder, resume=True, rounds=done + 1)
    assert again.status == "completed"
    assert int(again.rounds[-1]) == done + 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": 0}, "timeout must be a finite number above 0"),
        ({"quorum": 0}, "quorum must be a whole number >= 1"),
        ({"quorum": 9}, "a round has 5 clients"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"dtype": "float16"}, "dtype must be"),
        ({"norm": float("inf")}, "norm must be"),
        ({"algorithm": pf.p_fedavg(rate=0.1, participation=pf.PowerOfChoice(2, 3))}, 'use estimate="last"'),
        ({"source": lambda client: None, "algorithm": pf.p_fedavg(rate=0.1)}, 'use deploy="round"'),
    ],
)
def test_what_a_federation_refuses(options, words):
    with pytest.raises(ValueError, match=words):
        federation(**options)


def test_a_model_that_was_altered_is_never_deployed(tmp_path):
    """Every single flipped bit of a stored model is noticed, and so is a model that is not finite."""
    made, folder = federation(rounds=2), tmp_path / "server"
    rehearse(made, tmp_path)
    path = folder / "models" / "000001.bin"
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(40):
        altered = bytearray(whole)
        altered[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(altered)
        with pytest.raises(ValueError, match="altered or damaged"):
            rollback(made, folder, 1)
    with made.precision():
        theta = jax.tree.map(lambda leaf: np.full_like(np.asarray(leaf), np.inf), made.ready.start)
    write_sealed(path, encode({"version": 1}, flatten(theta, "theta")))
    with pytest.raises(ValueError, match="non-finite"):
        rollback(made, folder, 1)
    path.write_bytes(whole)
    rollback(made, folder, 1)
