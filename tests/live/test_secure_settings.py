"""What a federation of sums refuses, by name, and how a file asks for it."""

import pytest
from federations import federation, gaussian

import performative as pf
from performative.live import Secure, load, rehearse

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
        ({"algorithm": pf.scaffold(0.1)}, "Scaffold needs single updates"),
        ({"algorithm": pf.pofl(0.1, window=3, aggregator=pf.aggregators.PooledJacobian())}, "PooledJacobian needs"),
        (
            {"algorithm": pf.p_fedavg(0.1, participation=pf.PowerOfChoice(2, 3, estimate="last"))},
            "PowerOfChoice chooses",
        ),
        (
            {"algorithm": pf.p_fedavg(0.1, participation=pf.FirstK(2, pf.participation.Exponential(1.0)))},
            "with FirstK weights follow",
        ),
        ({"algorithm": pf.p_fedavg(0.1, sharing=pf.sharing.PerClient())}, "sharing=PerClient weighs"),
        ({"problem": gaussian(weights=[0.0, 0.25, 0.25, 0.25, 0.25])}, "client 0 weighs 0"),
        ({"secure": Secure(threshold=2)}, "threshold must be more than half of the 5 clients"),
        ({"secure": Secure(threshold=6)}, "threshold must be more than half of the 5 clients"),
        ({"record": pf.Record(clients=("update_norm",))}, "record.clients has 'update_norm'"),
        ({"record": pf.Record(clients=("loss",))}, "losses|'loss'"),
        (
            {"record": pf.Record(metrics={"gap": pf.Metric(lambda view: view.time, unprotected=True)})},
            "the metric 'gap' may look at single updates",
        ),
        (
            {"algorithm": pf.p_fedavg(0.1, channel=pf.channels.ClippedNoise(1.0, 1.0)), "secure": Secure(step=0.1)},
            "step=0.1 is coarse beside the noise of ClippedNoise",
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


# --- what noise promises against the server itself
