"""Few combinations of parts in which every two parts meet."""

import itertools
from collections.abc import Callable, Iterator

Row = dict[str, str]


def covering_array(slots: dict[str, list[str]], allowed: Callable[[Row], bool]) -> Iterator[Row]:
    """Rows such that every pair of parts from two slots that may meet does so in some row. Greedy, no randomness."""
    names = list(slots)
    wanted = {
        frozenset([(a, x), (b, y)])
        for a, b in itertools.combinations(names, 2)
        for x, y in itertools.product(slots[a], slots[b])
        if _completes({a: x, b: y}, slots, allowed)
    }
    while wanted:
        row = dict(min(wanted, key=sorted))
        for name in names:
            if name in row:
                continue
            fits = [v for v in slots[name] if _completes({**row, name: v}, slots, allowed)]
            row[name] = max(fits, key=lambda v: sum(frozenset([(name, v), item]) in wanted for item in row.items()))
        wanted -= {frozenset(pair) for pair in itertools.combinations(row.items(), 2)}
        yield {name: row[name] for name in names}


def _completes(part: Row, slots: dict[str, list[str]], allowed: Callable[[Row], bool]) -> bool:
    """Whether a row that begins like this can be finished."""
    if not allowed(part):
        return False
    missing = next((name for name in slots if name not in part), None)
    if missing is None:
        return True
    return any(_completes({**part, missing: value}, slots, allowed) for value in slots[missing])
