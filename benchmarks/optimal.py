"""What the performative gradient costs beside the plain one. Ratios within one run; nothing is asserted."""

import performative as pf
from benchmarks.core import LEAN, alternate

CLIENTS, GOODS, WINDOW, SAMPLES, ROUNDS = 100, 10, 50, 500, 20


def _seconds(name: str, algorithm: pf.Algorithm, problem: pf.Problem, best: dict[str, float]):
    def run():
        history = pf.run(problem, algorithm, ROUNDS, record_theta="last", **LEAN)
        best[name] = min(best.get(name, float("inf")), history.meta["seconds"])
        return history.theta

    return run


def optimal_round() -> dict:
    """A round of PROFL against one of P-FedAvg, d=10, H=50, n=500, N=100, E=1."""
    problem = pf.cases.pricing_demands(CLIENTS, GOODS)
    common = {"rate": 0.01, "batch": pf.Fixed(SAMPLES)}
    inner = pf.estimators.Performative(WINDOW)
    algorithms = {
        "p_fedavg": pf.p_fedavg(**common),
        "pofl": pf.pofl(window=WINDOW, **common),
        "profl": pf.profl(window=WINDOW, **common),
        "printed": pf.p_fedavg(estimator=pf.estimators.Filtered(inner, rule="printed"), **common),
    }
    inside: dict[str, float] = {}
    alternate({name: _seconds(name, how, problem, inside) for name, how in algorithms.items()}, 5)
    return {
        "benchmark": "optimal: a round of PROFL and of P-FedAvg, d=10 H=50 n=500 N=100",
        **{f"{name}_ms": 1e3 * seconds / ROUNDS for name, seconds in inside.items()},
        **{f"{name}_ratio": inside[name] / inside["p_fedavg"] for name in algorithms if name != "p_fedavg"},
        "note": "compiled loop; the ratios are to P-FedAvg with batches of the same size",
    }


BENCHMARKS = {"optimal": optimal_round}
