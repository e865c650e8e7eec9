"""Possible drift without any reaction, as Markov models with a two-dimensional state."""

from typing import NamedTuple

import numpy as np

# "any": nothing is assumed, and only the random part of the models counts (`randomized`).
DRIFTS = ("none", "linear", "walk", "smooth", "any")
# Number of lagged innovations of data and model that the next one may depend on: for drifts between the guesses, such
# as a pure sine, which retrained models follow. Evidence then comes only from model moves beyond that.
LAGS = {"none": 0, "linear": 0, "walk": 1, "smooth": 2, "any": 0}
# Variances of a walk's step and of its slope's step, in units of the variance of a batch's mean.
_WALKS = (0.0, *np.geomspace(1e-4, 1e2, 7))
_LEVELS = (0.0, 0.03, 1.0)
_SLOPES = (0.0, 1e-4, 1e-2, 0.5)
# Waves: variances, looks over which height and phase may change, and frequencies (periods of 2.4 to 31 looks).
_HEIGHTS = (300.0,)
_FADING = 20.0
_FREQUENCIES = tuple(np.arange(0.2, 0.9 * np.pi, 0.4))


class Guesses(NamedTuple):
    """[G] variances of the level's and the slope's steps, of a wave, and its frequency; all 0 is no drift.

    level_{t+1} = level_t + slope_t + N,     slope_{t+1} = slope_t + N        (a walk whose slope walks)
    wave_{t+1}  = e^{-1/20} R(frequency) wave_t + N,      R a rotation        (a season whose height may change)
    """

    level: np.ndarray
    slope: np.ndarray
    wave: np.ndarray
    frequency: np.ndarray


def trends(drift: str) -> int:
    """k, the number of unknowns besides the random drift: the level and, except for "none", a trend."""
    check_drift(drift)
    return 1 if drift == "none" else 2


def check_drift(drift: object) -> None:
    """Refuse an unknown kind of drift."""
    if drift not in DRIFTS:
        raise ValueError(f"watch: drift must be one of {DRIFTS}; got {drift!r}.")


def guesses(drift: str) -> Guesses:
    """The guesses for a kind of drift: the audit's (`audit.drift.guesses`), with memory constant in the looks."""
    check_drift(drift)
    rows: list[tuple[float, float, float, float]] = [(0.0, 0.0, 0.0, 0.0)]
    if drift == "walk":
        rows = [(level, 0.0, 0.0, 0.0) for level in _WALKS]
    if drift == "smooth":
        rows = [(level, slope, 0.0, 0.0) for level in _LEVELS for slope in _SLOPES]
        rows += [(0.0, 0.0, height, frequency) for height in _HEIGHTS for frequency in _FREQUENCIES]
    return Guesses(*np.array(rows).T)


def start(told: Guesses) -> np.ndarray:
    """[2, 2, G] covariance of the state at the first look: walks start at 0, as the level is free; waves do not."""
    return np.eye(2)[:, :, None] * told.wave


def moves(told: Guesses, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """[2, 2, G] transition of the state over `gap` looks, and the covariance of its innovation."""
    is_wave = told.wave > 0
    fade, angle = np.exp(-gap / _FADING), told.frequency * gap
    cos, sin = fade * np.cos(angle), fade * np.sin(angle)
    step = np.array([[np.where(is_wave, cos, 1.0), np.where(is_wave, sin, gap)],
                     [np.where(is_wave, -sin, 0.0), np.where(is_wave, cos, 1.0)]])  # fmt: skip
    fresh = told.wave * (1 - fade**2)
    across = np.where(is_wave, 0.0, told.slope * gap**2 / 2)
    level = np.where(is_wave, fresh, told.level * gap + told.slope * gap**3 / 3)
    return step, np.array([[level, across], [across, np.where(is_wave, fresh, told.slope * gap)]])
