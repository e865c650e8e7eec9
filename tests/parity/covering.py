"""Few combinations of parts in which every two parts meet."""

import itertools
from collections.abc import Iterable

Row = dict[str, str]


def product_of(slots: dict[str, Iterable[str]]) -> list[Row]:
    """All combinations, one part a slot."""
    return [dict(zip(slots, parts, strict=True)) for parts in itertools.product(*slots.values())]


def pairs_of(row: Row) -> list[frozenset[tuple[str, str]]]:
    """Every two parts of a row."""
    return [frozenset(pair) for pair in itertools.combinations(row.items(), 2)]


def covering_rows(candidates: list[Row]) -> list[Row]:
    """Some of the candidates, in which every two parts meet that meet in any of them. Greedy, no randomness."""
    holding: dict[frozenset[tuple[str, str]], list[Row]] = {}
    for row in candidates:
        for pair in pairs_of(row):
            holding.setdefault(pair, []).append(row)
    wanted, chosen = dict.fromkeys(holding), []
    while wanted:
        rarest = min(wanted, key=lambda pair: len(holding[pair]))
        chosen.append(max(holding[rarest], key=lambda row: sum(pair in wanted for pair in pairs_of(row))))
        for pair in pairs_of(chosen[-1]):
            wanted.pop(pair, None)
    return chosen
