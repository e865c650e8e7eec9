"""Banks that compete for applicants: what does competition do to accuracy, and to the applicants?"""

from typing import Any

import numpy as np
from scipy.stats import norm

import performative as pf
from performative.cases.games import KINDS
from performative.papers.outcome import Outcome, bars, lay_out, mean
from performative.papers.runs import quiet

# Standard deviation of features in the case.
_SPREAD = 0.8


def competing_banks(
    sharpness: list[float], tried: list[float], reaction: float, rate: float, batch: int, rounds: int, repeats: int,
    seed: int,
) -> Outcome:  # fmt: skip
    """Two banks: the attracting stable point at every sharpness, and noisy play at the two `tried`."""
    apart = np.array([[1.5, 0.5, 0.0], [0.5, 1.5, 0.0]])
    alone = np.asarray(pf.stable_point(pf.cases.competing_banks(1, 0.0, reaction)))
    points, factors = {}, {}
    for sharp in sorted({*sharpness, *tried}):
        game = pf.cases.competing_banks(2, sharp, reaction)
        found: Any = pf.stable_point(game, start=apart, report=True)
        points[sharp] = np.asarray(found.theta)
        equal = [one for one in (found, *found.others) if np.allclose(one.theta[0], one.theta[1], atol=1e-5)]
        factors[sharp] = equal[0].contraction
    told = {sharp: _outcome(points[sharp], sharp, reaction) for sharp in sharpness}
    one = _outcome(alone, 0.0, reaction)
    lean = {sharp: float(_lean(points[sharp])) for sharp in points}
    played = {sharp: _play(sharp, reaction, rate, batch, rounds, repeats, seed) for sharp in tried}
    paths, rounds_of = {sharp: found for sharp, (_, found) in played.items()}, played[tried[0]][0]
    ends = {sharp: found[:, -1] for sharp, found in paths.items()}
    numbers: dict[str, Any] = {
        # The factor at the symmetric point is linear in the sharpness: no bank moves, only people do.
        "critical_sharpness": float(np.interp(1.0, [factors[s] for s in sharpness], sharpness)),
        "accuracy_one_bank": one["all"],
        "accuracy_two_banks": told[sharpness[-1]]["all"],
        "accuracy_other_kind": told[sharpness[-1]]["other kind"],
        "accepted_one_bank": one["accepted"],
        "accepted_two_banks": told[sharpness[-1]]["accepted"],
        "moved_one_bank": one["moved"],
        "moved_two_banks": told[sharpness[-1]]["moved"],
    }
    mild, sharp = tried
    numbers |= {"lean_mild": mean(ends[mild]), "lean_sharp": mean(np.abs(ends[sharp])), "lean_sharp_exact": lean[sharp]}
    x = np.asarray(sharpness)

    def line(name: str) -> tuple[np.ndarray, np.ndarray]:
        return x, np.array([told[sharp][name] for sharp in sharpness])

    flat = {name: (x, np.full(len(x), one[name])) for name in ("all", "moved")}
    ways = {f"sharpness {sharp:g}": (rounds_of, np.abs(paths[sharp])) for sharp in tried}
    data = {
        "lean": lay_out(ways),
        "accuracy": lay_out({"all": line("all"), "other kind": line("other kind"), "one bank": flat["all"]}),
        "moved": lay_out({"two banks": line("moved"), "one bank": flat["moved"]}),
    }
    return Outcome(numbers, data)


def play(
    pull: float, rate: float, rounds: int, damping: float, players: int, spread: float, seed: int
) -> Outcome:  # fmt: skip
    """Two sellers who chase each other, alternating and simultaneous; and the three points of a many-player game."""
    demand, chase = [1.0, 0.5], np.array([[0.0, pull], [-pull, 0.0]])
    ways = {
        "in turn, damped": ("alternating", damping),
        "in turn": ("alternating", 0.0),
        "at once": ("simultaneous", 0.0),
    }
    numbers: dict[str, Any] = {"verdicts_right": 0.0}
    paths = {}
    for name, (order, penalty) in ways.items():
        game = pf.cases.linear_game(demand, chase, penalty, 0.0, order)
        algorithm = pf.p_fedavg(rate)
        history = pf.run(game, algorithm, rounds, **quiet(theta="all"))
        outlook, verdict = pf.play_outlook(game, algorithm), pf.play_verdict(history)
        away = np.linalg.norm(np.asarray(history.theta[0]) - np.asarray(outlook.point), axis=1)
        paths[name] = (np.arange(rounds + 1), away)
        word = name.replace(", ", "_").replace(" ", "_")
        numbers[f"{word}_radius"] = outlook.radius
        numbers[f"{word}_growth"] = float(np.exp(np.polyfit(np.arange(rounds + 1), np.log(away), 1)[0]))
        ends = (
            ("settled", "settles") if penalty else ("cycles", "unknown") if "turn" in name else ("diverged", "leaves")
        )
        numbers["verdicts_right"] += (verdict.kind, outlook.verdict) == ends
    rng = np.random.default_rng(seed)
    m = spread * rng.standard_normal((players, players)) / np.sqrt(players) - np.diag(rng.uniform(0.5, 1.0, players))
    b, penalty = rng.uniform(1.0, 2.0, players), 1.5
    many = pf.cases.linear_game(b, m, penalty)
    exact = {"stable": 0 * m, "nash": np.diag(np.diag(m)), "social": m.T}
    off = {}
    for name, solver in (("stable", pf.stable_point), ("nash", pf.nash_point), ("social", pf.social_point)):
        point = np.linalg.solve(penalty * np.eye(players) - m - exact[name], b)
        off[name] = float(np.max(np.abs(np.asarray(solver(many)) - point)))
        numbers[f"{name}_cost"] = float(np.mean(pf.player_risks(many, point)))
    numbers["farthest_off"] = max(off.values())
    profits = {name: [-numbers[f"{name}_cost"]] for name in exact}
    return Outcome(numbers, {"distance": lay_out(paths), "profits": bars(profits)})


def _play(
    sharp: float, reaction: float, rate: float, batch: int, rounds: int, repeats: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rounds, and how far the banks specialize in noisy play, [repeats, records]."""
    game = pf.cases.competing_banks(2, sharp, reaction)
    algorithm = pf.p_fedavg(pf.schedules.harmonic(rate * rounds / 4, rounds / 4), batch=pf.Fixed(batch))
    how = quiet("float32", theta="all", every=max(1, rounds // 100))
    history = pf.run(game, algorithm, rounds, seed=seed, repeats=repeats, **how)
    return history.rounds, _lean(np.asarray(history.theta, np.float64))


def _lean(theta: np.ndarray) -> Any:
    """How much more the first bank weights the first feature and the second bank the second, averaged.

    For models [..., banks, features].
    """
    apart = theta[..., 0] - theta[..., 1]
    return (apart[..., 0] - apart[..., 1]) / 2


def _outcome(theta: np.ndarray, sharp: float, reaction: float) -> dict[str, float]:
    """Exact over normal features: right decisions, good applicants accepted, and how far features were moved."""
    good = np.concatenate([KINDS[:, 0], np.ones((len(KINDS), 1))], axis=1)
    pull = np.exp(-sharp * theta @ good.T)
    chosen = pull / pull.sum(axis=0) / len(KINDS)  # [banks, kinds], sums to 1
    slope, level = theta[:, :2], theta[:, 2]
    length = np.linalg.norm(slope, axis=1)
    where = np.einsum("kyd,bd->bky", KINDS, slope) + (level - reaction * length**2)[:, None, None]
    refused = norm.cdf(where / (_SPREAD * length)[:, None, None])  # score above 0
    right = (1 - refused[..., 0] + refused[..., 1]) / 2
    rare = np.argmin(chosen, axis=1)
    banks = np.arange(len(theta))
    return {
        "all": float(np.sum(chosen * right)),
        "other kind": float(np.mean(right[banks, rare])),
        "accepted": float(np.sum(chosen * (1 - refused[..., 0]))),
        "moved": float(np.sum(chosen * reaction * length[:, None])),
    }
