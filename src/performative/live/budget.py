"""A client's own privacy ledger: it counts the client's answers across runs, and refuses once the budget is spent.

The server may be wrong, modified or hostile, so nothing it says is used here. The client records each answer under its
mechanism on its own disk before computing it. Runs with the same mechanism compose exactly, different ones by adding up
their epsilons, with delta split equally:

    epsilon = sum over mechanisms g of epsilon_g(answers_g, delta / G) <= the client's budget
"""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

from performative._base.files import read_sealed, write_sealed
from performative.live.telling import RequestRefused
from performative.privacy.accounting import Everyone, PoissonSampling, WithoutReplacement
from performative.privacy.certification import Guarantee, guarantee
from performative.privacy.promise import Privacy
from performative.privacy.releases import Releases

_FILE = "privacy.bin"
_SAMPLINGS: dict[str, Any] = {kind.__name__: kind for kind in (Everyone, PoissonSampling, WithoutReplacement)}
# A random participation scheme may ask this client this many standard deviations more often than on average.
_UNLIKELY = 6.0


class OwnLedger:
    """How much one client may still answer. `folder` is its own; without a budget, answers are only counted.

    `unseen_rows` and `secure_threshold` are as for `guarantee`.
    """

    def __init__(
        self, folder: Path, privacy: Privacy, problem: Any, algorithm: Any, unseen_rows: bool = False,
        secure_threshold: int | None = None,
    ):  # fmt: skip
        self.path, self.privacy = folder / _FILE, privacy
        self.guarantee: Guarantee = guarantee(
            problem,
            algorithm,
            privacy.unit,
            privacy.published,
            privacy.conservative,
            unseen_rows=unseen_rows,
            secure_threshold=secure_threshold,
        )
        if privacy.epsilon is not None and not self.guarantee.promised:
            raise ValueError(
                f"privacy: no budget can be kept because epsilon is infinite: {'; '.join(self.guarantee.why)}."
            )
        self.key = json.dumps([one.told() for one in self.guarantee.releases], sort_keys=True)
        self._most: tuple[str, float | int] = ("", 0.0)

    def answered(self) -> dict[str, int]:
        """Answers so far under each mechanism."""
        return json.loads(read_sealed(self.path)) if self.path.exists() else {}

    def charge(self, known: int) -> int:
        """Record one more answer before it is computed, or refuse. Returns the total number charged.

        Args:
            known: the number charged when the client last answered; a ledger with fewer was lost or replaced
        """
        counts = self.answered()
        if sum(counts.values()) < known:
            raise RequestRefused(
                "this client's privacy ledger is missing or older than its answers; it no longer answers."
            )
        mine = counts.get(self.key, 0)
        if self.privacy.epsilon is not None and mine + 1 > self.most(counts):
            raise RequestRefused(
                f"this client's own privacy budget, epsilon = {self.privacy.epsilon:g}, is spent; it no longer answers."
            )
        write_sealed(self.path, json.dumps({**counts, self.key: mine + 1}).encode(), private=True)
        return sum(counts.values()) + 1

    def most(self, counts: dict[str, int]) -> float | int:
        """How many answers under this mechanism the budget allows, given those under others."""
        assert self.privacy.epsilon is not None
        others = {key: count for key, count in counts.items() if key != self.key}
        told = json.dumps(others, sort_keys=True)
        if self._most[0] != told:
            delta = self.privacy.delta / (len(others) + 1)
            left = self.privacy.epsilon - sum(_spent(key, count, delta) for key, count in others.items())
            self._most = told, _most_answers(self.guarantee, left, delta) if left > 0 else 0.0
        return self._most[1]


def _most_answers(promise: Guarantee, epsilon: float, delta: float) -> float | int:
    """Answers of one client that stay within epsilon.

    If client-level privacy relies on random client sampling, it is guaranteed for R rounds, in R q of which this client
    is asked on average: more than sampling explains is refused, unless the guarantee also holds without sampling.
    """
    rounds = promise.most_rounds(epsilon, delta)
    (one, *_) = promise.releases
    if promise.unit != "client" or not isinstance(one.sampling, WithoutReplacement):
        return rounds
    share = one.sampling.n / one.sampling.rows
    likely = math.floor(rounds * share + _UNLIKELY * math.sqrt(rounds * share * (1 - share)))
    return max(Releases(one.noise_multiplier, Everyone()).most_rounds(epsilon, delta), likely)


def _spent(key: str, answers: int, delta: float) -> float:
    """Epsilon of earlier answers under a recorded mechanism; infinite if it has no guarantee."""
    releases = tuple(_read(one) for one in json.loads(key))
    return Guarantee("example", releases).spent(answers, delta).epsilon


def _read(told: dict[str, Any]) -> Releases:
    sampling = dict(told["sampling"])
    return Releases(told["z"], _SAMPLINGS[sampling.pop("kind")](**sampling), Fraction(told["each"]), told["most"])
