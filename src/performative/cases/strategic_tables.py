"""Strategic classification on real tables: Give Me Some Credit and Adult, with the constants of three papers.

Each function returns a problem to train on and the same with held-out people, who react too. What the papers leave open
is chosen here, and documented.
"""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from performative import data as sets
from performative import losses, partition
from performative._base.arguments import checked
from performative._base.checks import check_counts, check_finite, nearest
from performative.facts import cites
from performative.populations import Strategic
from performative.problem import SCALED_BY_ROWS, Problem
from performative.types import as_numbers

# Columns that people can change if a rule does not let them change all: those of Jin et al. 2023, Section 4.2
# (credit lines and loans), and, since no paper specifies it for Adult, what a person could misreport.
_CREDIT = ("RevolvingUtilizationOfUnsecuredLines", "NumberOfOpenCreditLinesAndLoans", "NumberRealEstateLoansOrLines")
_ADULT = ("education-num", "capital-gain", "capital-loss", "hours-per-week")
# Rows in the sample of Li, Yemini and Wai 2024, which they did not publish.
_SAMPLE = 15_776
# Quantiles at which "strong" clips a column.
_TAILS = (0.01, 0.99)


class StrategicTables(NamedTuple):
    """A problem to train on, and the same rule for held-out people."""

    problem: Problem
    held_out: Problem


@dataclasses.dataclass(frozen=True)
class _Rule:
    """How people react and what is minimized. `strength` is (low, high) over the clients, by label or for all.

    `penalty` is a number, or the c of c / (number of rows).
    """

    clients: int
    strength: tuple[tuple[float, float], ...]
    penalty: float
    by_rows: bool
    some_columns: bool = False
    ones: bool = True
    private: bool = False


_RULES = {
    ("p_fedavg", "paper"): _Rule(10, ((0.9, 1.1),), 1.0, True, some_columns=True),
    ("p_fedavg", "strong"): _Rule(10, ((0.0, 4.0),), 0.05, False, some_columns=True),
    ("profl", "paper"): _Rule(10, ((0.0, 0.0), (3.0, 3.0)), 0.01, False),
    ("profl", "strong"): _Rule(10, ((0.0, 0.0), (1.0, 1.0)), 0.2, False),
    ("pcsgd", "paper"): _Rule(1, ((0.01, 0.01),), 100.0, True, ones=False, private=True),
    ("pcsgd", "strong"): _Rule(1, ((0.3, 0.3),), 0.05, False, ones=False, private=True),
}


@cites("creditfusion2011give", "perdomo2020performative", "jin2024performative")
@checked
def strategic_credit(
    paper: str = "p_fedavg",
    effect: str = "paper",
    clients: int | None = None,
    *,
    strength: Any = None,
    penalty: float | None = None,
    rows: int | None = None,
    held_out: float = 0.3,
    seed: int = 0,
    path: str | Path | None = None,
    download: bool = True,
) -> StrategicTables:
    """Borrowers of Give Me Some Credit who change what a lender sees; label 1 was 90 days late.

        "p_fedavg"  x - eps_i theta on utilization, open lines and real estate loans, eps_i ~ U[0.9, 1.1], 10 clients;
                    the balanced table of 18,357 rows; L2 of 1/n, the intercept free             (Jin et al. 2024)
        "profl"     x - gamma_y theta on all columns, gamma_1 = 3, gamma_0 = 0, 10 clients; all 120,269 rows without
                    gaps; L2 of 0.01                                                            (Zheng et al. 2024)
        "pcsgd"     x - beta y theta / |theta| on all columns, one learner, no intercept; 15,776 rows; loss (7),
                    which counts y = 1 twice; L2 of 100/m                                (Li, Yemini and Wai 2024)

    Args:
        effect: "paper", or "strong": see below
        strength: eps, gamma or beta, overriding the rule's: a number, one per client, or [clients, 2] by label. "pcsgd"
            has 0.01; the paper also uses 0.001 and 0.1
        penalty: overrides the rule's
        rows: number of rows drawn at random, None for all of the rule's
        held_out: fraction of rows held out; the paper behind "pcsgd" holds out 3 of 10, the others none
        seed: for drawing rows, the split, the assignment to clients, and eps_i
        path, download: where the data are, see `pf.data.credit`

    "strong" is ours. With the printed constants, hardly any effect is visible. Outliers of 50,000 times the usual value
    swamp the columns that move, so models hardly use them; the common part of eps_i moves every score equally, which a
    free intercept undoes, so the stable and the optimal point coincide if all react equally; and if 93% of the people
    are in one class, every model predicts that class. "strong" uses the balanced table with each column clipped at its
    1% and 99% quantile, and eps_i ~ U[0, 4], gamma_1 = 1 or beta = 0.3 with L2 of 0.05, 0.2 and 0.05. These are the
    largest round figures with which full retraining still converges (contraction 0.55, 0.72, 0.82 here, and 0.74,
    0.80, 0.65 on Adult): beyond them, only small steps do.
    Under "pcsgd" the stable and the optimal point always coincide: theta.x falls by beta |theta|, whose derivative in
    the deployed model's direction is zero at that model itself.
    Differs from the papers: Zheng et al. count eleven features of credit, which we interpret as the ten and a column of
    ones that nobody can change; the 15,776 rows of Li, Yemini and Wai are not published, ours are drawn at random.
    Every rule scales its columns by the training rows, except the balanced table as printed, which is already scaled.
    """
    rule = _find_rule("strategic_credit", paper, effect)
    if (paper, effect) == ("p_fedavg", "paper") or effect == "strong":
        table = sets.credit(balanced=True, path=path, download=download)
    else:
        table = sets.credit(drop_missing=True, path=path, download=download)
    wanted = _SAMPLE if (paper, effect, rows) == ("pcsgd", "paper", None) else rows
    rng = np.random.default_rng(seed)
    table = table.take(_draw(rng, len(table), wanted, "strategic_credit"))
    if not 0 < held_out < 1:
        raise ValueError(f"strategic_credit: held_out must be a fraction between 0 and 1; got {held_out!r}.")
    order, cut = rng.permutation(len(table)), round(len(table) * (1 - held_out))
    train, test = table.take(order[:cut]), table.take(order[cut:])
    x, unseen = train.x, test.x
    if (paper, effect) != ("p_fedavg", "paper"):
        x, unseen = _scaled(train.x, test.x, cut=effect == "strong")
    movable = tuple(train.features.index(name) for name in _CREDIT)
    return _deal(rule, (x, train.y), (unseen, test.y), movable, clients, strength, penalty, seed)


@cites("becker1996adult", "zheng2024profl")
@checked
def strategic_adult(
    paper: str = "profl",
    effect: str = "paper",
    clients: int | None = None,
    *,
    strength: Any = None,
    penalty: float | None = None,
    rows: int | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    download: bool = True,
) -> StrategicTables:
    """People of the 1994 census who change what an income classifier sees; label 1 earns over 50,000 dollars a year.

        "profl"     x - gamma_{i,y} theta on all 14 columns, gamma_1 in [2.8, 3.2], gamma_0 in [0, 0.004] on the
                    midpoint grid, 10 clients, L2 of 0.01, no intercept                (Zheng et al. 2024, Table 2)

    Only that paper uses this table. "p_fedavg" and "pcsgd" are the rules of `strategic_credit` on it: under "p_fedavg"
    people change years of education, capital gain and loss, and hours, under "pcsgd" all columns. The other arguments
    are those of `strategic_credit`; `effect="strong"` balances the classes, clips columns at their 1% and 99%
    quantile, adds an intercept to every rule but "pcsgd", and uses the strengths given there.
    The split is the published one, 30,162 and 15,060 rows without missing values; `rows` counts both parts.

    The paper does not say how its 14 features are encoded. Here categories are numbered in alphabetical order, which is
    poor practice, but 14 columns without an intercept give accuracies close to the printed ones: 56.8% at the stable
    and 61.6% at the optimal point, compared with 54.74 and 60.78. Always predicting "no" has an accuracy of 75.1%.
    """
    rule = _find_rule("strategic_adult", paper, effect)
    if (paper, effect) == ("profl", "paper"):
        rule = dataclasses.replace(rule, strength=((0.0, 0.004), (2.8, 3.2)), ones=False)
    if (paper, effect) == ("pcsgd", "strong"):
        rule = dataclasses.replace(rule, strength=((0.2, 0.2),))  # 0.3 repels retraining here
    parts = [sets.adult(split, drop_missing=True, path=path, download=download) for split in ("train", "test")]
    numbers = _numbered(parts)
    share = len(parts[0]) / sum(map(len, parts))
    rng, chosen = np.random.default_rng(seed), []
    for (x, y), of_rows in zip(numbers, (share, 1 - share), strict=True):
        kept = np.arange(len(y)) if effect == "paper" else _evened(rng, y)
        many = None if rows is None else round(rows * of_rows)
        kept = kept[_draw(rng, len(kept), many, "strategic_adult")]
        chosen.append((x[kept], y[kept]))
    (x, y), (unseen, answers) = chosen
    x, unseen = _scaled(x, unseen, cut=effect == "strong")
    movable = tuple(parts[0].features.index(name) for name in _ADULT)
    return _deal(rule, (x, y), (unseen, answers), movable, clients, strength, penalty, seed)


def _find_rule(owner: str, paper: str, effect: str) -> _Rule:
    if (paper, effect) not in _RULES:
        papers = sorted({name for name, _ in _RULES})
        if paper not in papers:
            raise ValueError(f"{owner}: paper={paper!r} is unknown.{nearest(str(paper), papers)}")
        raise ValueError(f'{owner}: effect must be "paper" or "strong"; got {effect!r}.')
    return _RULES[paper, effect]


def _draw(rng: np.random.Generator, have: int, wanted: int | None, owner: str) -> np.ndarray:
    """Indices of `wanted` distinct rows in random order; if None, all rows in order."""
    if wanted is None:
        return np.arange(have)
    check_counts(**{f"{owner}: rows": wanted})
    if wanted > have:
        raise ValueError(f"{owner}: rows={wanted} exceeds the {have} rows available.")
    return rng.permutation(have)[:wanted]


def _evened(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    """Rows balanced by label: all of the rarer one, the same number of the other at random."""
    groups = [rng.permutation(np.flatnonzero(y == label)) for label in (0, 1)]
    least = min(map(len, groups))
    return np.sort(np.concatenate([group[:least] for group in groups]))


def _numbered(parts: list[sets.Table]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Categories numbered in alphabetical order over all parts; numbers unchanged."""
    columns = []
    for index in range(len(parts[0].features)):
        values = [part.x[:, index] for part in parts]
        if isinstance(values[0][0], str):
            words = np.unique(np.concatenate(values).astype(str))
            values = [np.searchsorted(words, value.astype(str)) for value in values]
        columns.append([value.astype(np.float64) for value in values])
    return [(np.stack([column[i] for column in columns], axis=1), part.y) for i, part in enumerate(parts)]


def _scaled(train: np.ndarray, test: np.ndarray, cut: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean 0 and variance 1 over the training rows, after clipping the tails if `cut`."""
    if cut:
        low, high = np.quantile(train, _TAILS, axis=0)
        train, test = np.clip(train, low, high), np.clip(test, low, high)
    center, spread = train.mean(axis=0), train.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return (train - center) / spread, (test - center) / spread


def _deal(
    rule: _Rule,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    movable: tuple[int, ...],
    clients: int | None,
    strength: Any,
    penalty: float | None,
    seed: int,
) -> StrategicTables:
    """Assign rows to clients at random, and build the two problems."""
    clients = rule.clients if clients is None else clients
    features = train[0].shape[1]
    if penalty is None:
        # n counts training rows; the m of "pcsgd" counts the rows before the split.
        counted = len(train[1]) + (len(test[1]) if rule.private else 0)
        penalty = rule.penalty / counted if rule.by_rows else rule.penalty
    check_finite("strategic tables", penalty=penalty)
    loss = losses.logistic(penalty, (1.0, 2.0) if rule.private else None, intercept=features if rule.ones else None)
    columns = movable if rule.some_columns else tuple(range(features))
    if strength is None:
        strength = _strengths(rule, clients, seed)

    def problem(x: np.ndarray, y: np.ndarray) -> Problem:
        if rule.ones:
            x = np.column_stack([x, np.ones(len(x))])
        hands = partition.iid(len(y), clients, seed)
        tables, labels, count = partition.tables(x, y, hands)
        population = Strategic(
            tables,
            labels,
            as_numbers(strength),
            features=columns,
            count=None if np.all(count == count[0]) else count,
            response="evade" if rule.private else "linear",
        )
        return Problem(loss, population, weights=count / len(y), from_data=(SCALED_BY_ROWS,))

    return StrategicTables(problem(*train), problem(*test))


def _strengths(rule: _Rule, clients: int, seed: int) -> Any:
    """One per client, drawn uniformly; by label, on the midpoint grid."""
    check_counts(clients=clients)
    if len(rule.strength) == 2:
        places = (np.arange(clients) + 0.5) / clients
        return np.stack([low + (high - low) * places for low, high in rule.strength], axis=1)
    (low, high), *_ = rule.strength
    return np.random.default_rng(seed).uniform(low, high, clients)
