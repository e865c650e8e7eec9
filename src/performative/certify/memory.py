"""Data with memory: what is guaranteed for model and worlds jointly."""

import math

from performative.facts import declared
from performative.problem import Problem
from performative.solve.landscape import Landscape
from performative.solve.worlds import remembers


def memory_rate(problem: Problem, land: Landscape, settled: float, spells: int | None) -> float:
    """Fraction of the error in model and felt models that a retraining leaves, from every start; NaN if unknown.

        |theta' - theta''| <= rho max_ij |felt_ij' - felt_ij''|,      rho = eps_bar L_data / mu (settled data)
        max_ij |felt_ij' - felt_ij''| <= max_ij (q_ij + (1 - q_ij) rho) max_ij |felt_ij - felt_ij''|,
        q_ij = (1 - speed_ij)^spells

    One prime marks the values after a retraining, two primes those at the stable point.
    The first line is Perdomo et al. 2020, Theorem 3.5, for people who have felt different models: the Wasserstein
    distance of a client's data is at most eps_i times the share-weighted mean of what its pools felt. Hence any speeds
    above 0 settle if rho < 1. Attained with one speed and eps_i >= 0 (Brown, Hod and Kalemaj 2022).
    """
    if spells is None:
        return settled
    found = declared(problem.population, "trails")
    if found is None or math.isnan(settled):
        return math.nan
    speeds, feels = found
    if remembers(Problem(land.problem.loss, feels), land.like):
        return math.nan
    left = (1.0 - speeds) ** spells
    return float((left + (1.0 - left) * settled).max())
