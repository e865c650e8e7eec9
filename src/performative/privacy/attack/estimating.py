"""Run all attacks that apply to an algorithm in one call."""

from performative._base.arguments import checked
from performative.algorithm import Algorithm
from performative.privacy.attack.planting import canaries as plant_canaries
from performative.privacy.attack.report import AttackResult
from performative.privacy.attack.target import read_target
from performative.privacy.attack.trials import release, try_messages, try_neighbors
from performative.privacy.certification import read_unit
from performative.problem import Problem

_ROWS = 100
_CLIENTS = 20
_WIDE = 0.01


@checked
def estimate_epsilon(
    problem: Problem | None,
    algorithm: Algorithm,
    rows: int | None = None,
    rounds: int = 100,
    delta: float = 1e-5,
    repeats: int = 2000,
    canaries: int = 10_000,
    seed: int = 0,
    *,
    unit: str | None = None,
    claimed: float | None = None,
    confidence: float = 0.999,
) -> list[AttackResult]:
    """Attack an algorithm's own estimator, batch and channel on crafted data; return one finding per attack.

    Args:
        problem: determines the number of rows (or clients) if `rows` is None; its data are not used
        rows: rows of the crafted table, or number of clients
        claimed: epsilon claimed for all `rounds`; None for the accountant's, infinity if it certifies nothing
        repeats: runs on each of two neighbors;  canaries: 0 for none

    Each finding holds with this confidence individually. The absence of an alarm proves nothing.
    """
    unit = read_unit(unit, algorithm)
    rows = _rows(problem, algorithm, unit) if rows is None else rows
    target = read_target(algorithm, rows, unit)
    trials = try_neighbors(algorithm, rows, rounds, repeats, seed, unit, None)
    findings = [trials.finding(delta, claimed, confidence)]
    if claimed is None and delta < _WIDE:
        # The accountant's claim holds for every delta, and a few runs reveal more at a large one.
        findings.append(trials.finding(_WIDE, None, confidence))
    if target.exact:
        apart = try_messages(algorithm, rows, rounds, repeats, seed + 1, unit)
        findings.append(apart.finding(max(delta, _WIDE), None, confidence))
        findings.append(release(algorithm, repeats=50 * repeats, seed=seed + 2, unit=unit, confidence=confidence))
        if canaries:
            planted = plant_canaries(
                algorithm, rows, rounds, delta, canaries, seed + 3, unit=unit, claimed=claimed, confidence=confidence
            )
            findings.append(planted)
    return findings


def _rows(problem: Problem | None, algorithm: Algorithm, unit: str) -> int:
    """Rows of the largest table, or as many clients as the scheme needs."""
    if unit == "example":
        return _ROWS if problem is None or problem.population.capacity is None else problem.population.capacity
    scheme = algorithm.participation
    clients = _CLIENTS if problem is None else problem.clients
    return min(clients, _CLIENTS) if scheme.is_full else max(clients, scheme.size(clients))
