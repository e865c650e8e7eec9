"""What a federation of sums refuses, by name, and how a file asks for it."""

import json

import numpy as np
import pytest
from federations import federation, gaussian, members

import performative as pf
from performative.live import Secure, load, rehearse
from performative.live.secure.roster import provision, read_roster

BAD = {
    "Krum": {"aggregator": pf.aggregators.Krum(byzantine=1)},
    "Median": {"aggregator": pf.aggregators.Median()},
    "TrimmedMean": {"aggregator": pf.aggregators.TrimmedMean(0.2)},
    "Varp": {"aggregator": pf.aggregators.Varp()},
    "Extrapolate": {"aggregator": pf.aggregators.Extrapolate()},
    "Krum inside": {"aggregator": pf.aggregators.Nova(pf.aggregators.Krum(byzantine=1))},
}


@pytest.mark.parametrize("name", BAD)
def test_aggregators_that_need_single_updates_are_refused_by_name(name):
    with pytest.raises(
        ValueError, match=f"the aggregator {name.split()[0] if ' ' not in name else '(Nova|Krum)'} needs"
    ):
        federation(algorithm=pf.p_fedavg(0.1, deploy="round", **BAD[name]), secure=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": pf.scaffold(0.1)}, "Scaffold needs individual updates"),
        ({"algorithm": pf.pofl(0.1, window=3, aggregator=pf.aggregators.PooledJacobian())}, "PooledJacobian needs"),
        (
            {"algorithm": pf.p_fedavg(0.1, participation=pf.PowerOfChoice(2, 3, estimate="last"))},
            "PowerOfChoice chooses",
        ),
        (
            {"algorithm": pf.p_fedavg(0.1, participation=pf.FirstK(2, pf.participation.Exponential(1.0)))},
            "with FirstK weights depend",
        ),
        ({"algorithm": pf.p_fedavg(0.1, sharing=pf.sharing.PerClient())}, "sharing=PerClient weights"),
        ({"problem": gaussian(weights=[0.0, 0.25, 0.25, 0.25, 0.25])}, "client 0 has weight 0"),
        ({"secure": Secure(threshold=2)}, "threshold must be more than half of the 5 clients"),
        ({"secure": Secure(threshold=6)}, "threshold must be more than half of the 5 clients"),
        ({"record": pf.Record(clients=("update_norm",))}, "record.clients has 'update_norm'"),
        ({"record": pf.Record(clients=("loss",))}, "losses|'loss'"),
        (
            {"record": pf.Record(metrics={"gap": pf.Metric(lambda view: view.time, unprotected=True)})},
            "the metric 'gap' may use individual updates",
        ),
        (
            {"algorithm": pf.p_fedavg(0.1, channel=pf.channels.ClippedNoise(1.0, 1.0)), "secure": Secure(step=0.1)},
            "step=0.1 is too coarse for the noise of ClippedNoise",
        ),
    ],
)
def test_what_secure_aggregation_refuses(options, words):
    with pytest.raises(ValueError, match=words):
        federation(**{"secure": True} | options)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"step": 0.0}, "step must be"), ({"weight_ratio": 0.5}, "at least 1"), ({"threshold": 0}, "threshold must be")],
)
def test_settings(options, words):
    with pytest.raises(ValueError, match=words):
        Secure(**options)


def test_an_estimator_that_sends_more_is_refused(tmp_path):
    """Its extra would be seen client by client."""
    estimator = pf.estimators.WithLoss(pf.estimators.Minibatch())
    made = federation(algorithm=pf.p_fedavg(0.1, estimator=estimator, deploy="round"), secure=True)
    with pytest.raises(ValueError, match=r"WithLoss sends the server more than an update \(loss\)"):
        rehearse(made, tmp_path)


def test_a_file_says_it(tmp_path):
    text = """
[problem]
case = { name = "credit", banks = 4 }
[algorithm]
recipe = "p_fedavg"
rate = 0.05
[run]
rounds = 1
[federation]
secure = SECURE
"""
    path = tmp_path / "federation.toml"
    for written, threshold in (("true", 3), ("{ threshold = 4, step = 1e-6 }", 4), ("false", None)):
        path.write_text(text.replace("SECURE", written))
        assert load(path).secure_threshold == threshold
    path.write_text(text.replace("SECURE", "{ threshhold = 4 }"))
    with pytest.raises(ValueError, match=r"secure.*threshold"):
        load(path)


@pytest.mark.parametrize(
    ("one", "says"), [("00" * 31, "must have 64 hex digits"), (None, "clients 0 and 1 the same key")]
)
def test_a_roster_in_which_one_counts_twice(one, says, tmp_path):
    provision({i: tmp_path / str(i) for i in range(3)})
    path = tmp_path / "0" / "roster.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps(known | {"1": known["0"] if one is None else one}))
    with pytest.raises(ValueError, match=says):
        read_roster(tmp_path / "0")


def test_steps_that_a_method_does_not_ask_for(tmp_path):
    """Where clients do different numbers of steps, each knows its own."""
    made = federation(
        algorithm=pf.fednova(rate=0.1, participation=pf.participation.LocalWork(pf.Full(), [1, 2, 3, 2, 1])),
        rounds=1,
        secure=True,
    )
    (person, *_) = members(made, tmp_path).values()
    with made.precision():
        person._check_steps(made.ready, 1)
        for steps in (0, 2, 3, None, True, 1.0, "1", [1]):
            with pytest.raises(ValueError, match="this method asks this client for 1 to 1"):
                person._check_steps(made.ready, steps)


def test_an_update_that_does_not_fit_is_refused_by_the_client(tmp_path):
    made = federation(rounds=1, secure=Secure(step=2.0**-66))
    with pytest.warns(UserWarning, match="nothing-was-learned"):
        live = rehearse(made, tmp_path)
    assert "exceeds the" in live.meta["failed"] and "integer range" in live.meta["failed"]


# --- what noise promises against the server itself


def noisy(**options):
    channel = pf.channels.ClippedNoise(clip=1.0, noise_multiplier=4.0)
    return pf.p_fedavg(0.1, channel=channel, deploy="round", **options)


def test_the_promise_is_for_a_curious_server():
    """It counts the noise of t clients, and that the server knows who takes part."""
    problem, algorithm = gaussian(8), noisy(participation=pf.SchemeTwo(4))
    trusted = pf.privacy.guarantee(problem, algorithm)
    curious = pf.privacy.guarantee(problem, algorithm, secure_threshold=3)
    assert curious.certified and curious.unit == "client"
    (one,) = curious.releases
    assert one.noise_multiplier == pytest.approx(4.0 * np.sqrt(3 / 4))
    assert one.sampling == type(one.sampling)() and type(one.sampling).__name__ == "Everyone"
    said = " ".join(curious.assumes)
    assert "honest but curious" in said and "sums of 3 or more" in said and "a trusted server" not in said
    assert curious.spent(5, 1e-3).epsilon > trusted.spent(5, 1e-3).epsilon
    assert "a trusted server, or secure aggregation" in " ".join(trusted.assumes)
