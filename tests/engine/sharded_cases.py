"""Problems, algorithms and options that are run on one device and on many, and how far two runs are apart."""

import numpy as np

import performative as pf

LOCAL = {"rate": 0.1, "local_steps": 2, "batch": pf.Fixed(3)}


def gaussian(clients):
    return pf.populations.Gaussian(np.arange(float(clients)), 0.5, 1.0)


def sluggish(clients):
    speed = np.random.default_rng(1).uniform(0.2, 0.9, clients)
    return pf.Problem(pf.losses.squared, pf.populations.Sluggish(gaussian(clients), speed))


def strategic(clients, rows=40):
    rng = np.random.default_rng(2)
    weights = rng.uniform(1.0, 2.0, clients)
    x, y = rng.standard_normal((clients, rows, 3)), rng.integers(0, 2, (clients, rows))
    population = pf.populations.Strategic(x, y, 0.5)
    return pf.Problem(pf.losses.logistic(0.1), population, weights=weights / weights.sum())


def reweighted(clients):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((clients, 8, 3)), rng.integers(0, 2, (clients, 8))
    population = pf.populations.Reweighted(x, y, 1.5, classes=2)
    return pf.Problem(pf.losses.cross_entropy(pf.losses.linear_scores), population)


def everyone():
    """11 clients on 8 devices, whose data remember."""
    return sluggish(11), pf.p_fedavg(rate=0.1, batch=pf.Fixed(3), aggregator=pf.aggregators.Median()), {}


def some():
    """5 draws with replacement from 16 clients, who look into tables and remember a control variate."""
    algorithm = pf.scaffold(**LOCAL, participation=pf.SchemeOne(5))
    return strategic(16), algorithm, {"record": pf.Record(risks=False, consensus=False)}


def small():
    """As little to compile as there can be."""
    more = {"rounds": 3, "record": pf.Record(risks=False, consensus=False)}
    return pf.Problem(pf.losses.squared, gaussian(11)), pf.p_fedavg(rate=0.1), more


def on_disk(folder, participation):
    rng = np.random.default_rng(4)
    file = folder / f"{type(participation).__name__}.npy"
    np.save(file, rng.standard_normal((19, 12, 3)))
    table = pf.tables.OnDisk(file)
    problem = pf.Problem(pf.losses.logistic(0.1), pf.populations.Static(table, rng.integers(0, 2, (19, 12))))
    return problem, pf.p_fedavg(**LOCAL, participation=participation), {"theta": np.zeros(3)}


def network(participation, **options):
    rng = np.random.default_rng(5)
    theta, scores = pf.networks.cnn((8, 8), 3, channels=(4, 8), width=16)
    population = pf.populations.Static(rng.standard_normal((12, 9, 8, 8)), rng.integers(0, 3, (12, 9)))
    algorithm = pf.p_fedavg(**LOCAL, participation=participation)
    return pf.Problem(pf.losses.cross_entropy(scores), population), algorithm, {"theta": theta, **options}


IN_TURN = {"clients_at_once": 2}
FAST = {"everyone": everyone, "some": some}
SLOW = {
    "one client": lambda: (pf.Problem(pf.losses.squared, gaussian(1)), pf.p_fedavg(**LOCAL), {}),
    "audited subset": lambda: (pf.Problem(pf.losses.squared, gaussian(600)), pf.p_fedavg(**LOCAL), {}),
    "different rows": lambda: (
        strategic(16), pf.p_fedavg(**LOCAL | {"batch": pf.Uniform(3)}, participation=pf.SchemeTwo(8)), {}
    ),
    "epochs, in turn": lambda: (strategic(20), pf.p_fedavg(**LOCAL | {"batch": pf.Shuffled(3)}), IN_TURN),
    "cohort in turn": lambda: (strategic(40), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(30)), IN_TURN),
    "different steps": lambda: (
        strategic(11),
        pf.p_fedavg(rate=0.1, batch=pf.Fixed(3), participation=pf.LocalWork(pf.Full(), np.arange(11) % 3 + 1)), {},
    ),
    "different steps of some": lambda: (
        strategic(11),
        pf.p_fedavg(rate=0.1, batch=pf.Fixed(3), participation=pf.LocalWork(pf.SchemeOne(4), np.arange(11) % 3 + 1)),
        {},
    ),
    "moving worlds": lambda: (
        sluggish(11), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(3), absent="reacts", deploy="round"), {}
    ),
    "class weights": lambda: (reweighted(10), pf.p_fedavg(**LOCAL), {"theta": np.zeros((2, 3))}),
    "class weights of some": lambda: (
        reweighted(10), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(3)), {"theta": np.zeros((2, 3))}
    ),
    "server memory": lambda: (strategic(16), pf.fedvarp(**LOCAL, participation=pf.SchemeTwo(5)), {}),
    "server memory, uneven": lambda: (strategic(11), pf.fedvarp(**LOCAL, participation=pf.SchemeTwo(5)), {}),
    "chosen by loss": lambda: (strategic(11), pf.p_fedavg(**LOCAL, participation=pf.PowerOfChoice(3, 6)), {}),
    "windows": lambda: (pf.Problem(pf.losses.squared, gaussian(9)), pf.profl(**LOCAL, window=3), {}),
    "thinned": lambda: (
        strategic(11), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(3)),
        {"rounds": 7, "record": pf.Record(risks=2, every=3, theta="last")},
    ),
    "diverging": lambda: (
        pf.Problem(pf.losses.squared, gaussian(11)), pf.p_fedavg(rate=5.0),
        {"rounds": 40, "record": pf.Record(risks=2, limit=1e3)},
    ),
    "box": lambda: (pf.Problem(pf.losses.squared, gaussian(11), domain=pf.Box(-1.0, 1.0)), pf.p_fedavg(**LOCAL), {}),
    "drifting": lambda: (
        pf.Problem(pf.losses.squared, pf.populations.Drifting(gaussian(11), pf.paths.Linear(0.1))),
        pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(3)), {},
    ),
    "asynchronous": lambda: (
        sluggish(11),
        pf.p_fedavg(**LOCAL, participation=pf.Asynchronous(3, 7, pf.participation.Exponential(1.0), staleness=0.5)), {},
    ),
    "late": lambda: (strategic(11), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(3), deploy=pf.Late(2)), {}),
    "own models": lambda: (
        strategic(11), pf.p_fedavg(**LOCAL, participation=pf.SchemeTwo(3), sharing=pf.sharing.Ditto(1.0)), {}
    ),
    "models in parts": lambda: (strategic(11), pf.p_fedavg(**LOCAL, sharing=pf.sharing.Rolling(0.5)), {}),
    "leaving": lambda: (
        strategic(11),
        pf.p_fedavg(**LOCAL, participation=pf.participation.Retention(pf.SchemeTwo(4), pf.participation.Patience(0.7))),
        {},
    ),
    "convolutions": lambda: network(pf.Full()),
    "convolutions of some": lambda: network(pf.SchemeTwo(5), clients_at_once=1),
}  # fmt: skip


def options_of(more):
    return {"rounds": 6, "repeats": 2, "dtype": "float64", "record": pf.Record(risks=2), **more}


def gap(first, second):
    """The largest difference of anything recorded, relative to 1 + its size; infinite where columns differ."""
    a, b = first.to_xarray(), second.to_xarray()
    if set(a) != set(b):
        return float("inf")
    if not all(np.array_equal(np.isnan(a[n].values), np.isnan(b[n].values)) for n in a):
        return float("inf")
    apart = [np.nan_to_num(np.abs(a[n].values - b[n].values) / (1 + np.abs(a[n].values))) for n in a]
    return max(float(np.max(gaps, initial=0.0)) for gaps in apart)


def same(first, second):
    a, b = first.to_xarray(), second.to_xarray()
    return set(a) == set(b) and all(np.array_equal(a[n], b[n], equal_nan=True) for n in a)
