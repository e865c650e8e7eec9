"""From a table as people have it to columns of numbers: what was done to it is told, and what cannot be is refused."""

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from performative._base.checks import nearest

# Words that a label may say by themselves; of others somebody has to say which is 1.
_YES, _NO = ("1", "1.0", "yes", "y", "true", "t"), ("0", "0.0", "no", "n", "false", "f")
# A column of more different words is no category.
_WORDS = 20
# Quantiles at which a column is cut where a few people set its scale.
_TAILS = (0.01, 0.99)
ALONE = "everybody"


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """Numbers, ready for `Problem.from_frame`.

    Attributes:
        frame: features, `label` of 0 and 1, and `client`
        label, client: names of these columns
        strategic: features that people can change
        group: one word a row, None where nobody asked
        positive: what the table calls 1
        notes: what was filled, cut, coded or left out
    """

    frame: Any
    label: str
    client: str
    strategic: tuple[str, ...]
    group: np.ndarray | None
    positive: Any
    notes: tuple[str, ...]

    @property
    def features(self) -> list[str]:
        return [str(name) for name in self.frame.columns if name not in (self.label, self.client)]


def prepare(
    frame: Any,
    *,
    label: str,
    positive: Hashable,
    client: str | None,
    strategic: Sequence[str] | None,
    group: str | None,
    ignore: Sequence[str],
    rows: int,
    scale: str,
    seed: int,
) -> Prepared:
    """Check each column, and make numbers of it."""
    frame = frame.rename(columns=str)
    twice = frame.columns[frame.columns.duplicated()].unique().tolist()
    if twice:
        raise ValueError(f"column {twice[0]!r} occurs twice; keep one.")
    asked = [("label", label), ("client", client), ("group", group)]
    asked += [("strategic", name) for name in strategic or ()] + [("ignore", name) for name in ignore]
    for role, name in asked:
        if name is not None and name not in frame.columns:
            raise ValueError(f"{role}={name!r} is not a column of the table.{nearest(str(name), frame.columns)}")
    notes: list[str] = []
    numbered = [name for name in frame.columns if name not in {n for _, n in asked} and _counts_rows(frame[name])]
    notes += [f"Column {name!r} counts the rows and was left out." for name in numbered]
    frame = _labeled(frame.drop(columns=numbered), label, notes)
    for role, name in (("client", client), ("group", group)):
        if name is not None and (empty := int(frame[name].isna().sum())):
            raise ValueError(f"{role}={name!r} says nothing in {empty} of {len(frame)} rows; fill or drop them first.")
    if len(frame) > rows:
        notes.append(f"{rows:,} of {len(frame):,} rows, drawn at random (--rows takes more).")
        frame = frame.sample(rows, random_state=seed).sort_index()
    frame = frame.reset_index(drop=True)
    answers, one = read_label(frame[label], label, positive)
    roles = {label, client, group} - {None}
    taken = [name for name in frame.columns if name not in roles and name not in ignore]
    made, numeric = _features(frame[taken], notes)
    if not made:
        raise ValueError(
            "no feature is left: all columns have another role, are ignored, or are the same in every row."
        )
    if group is not None:
        notes.append(f"{group!r} is the group, and not used as a feature.")
    if strategic is None:
        notes.append(f"All {len(numeric)} numeric columns were taken to be such as people can change (--strategic).")
    _check_strategic(strategic, made, numeric)
    movable = tuple(numeric if strategic is None else dict.fromkeys(strategic))
    if not movable:
        raise ValueError("strategic: there is no numeric column that people could change.")
    if scale == "auto":
        _cut(made, numeric, notes)
    import pandas as pd

    table = pd.DataFrame(made)
    who = ALONE if client is None else frame[client].astype(str)
    place = client or _free("client", table.columns)
    target = label if label not in table.columns else _free("label", table.columns)
    table = table.assign(**{target: answers, place: who})
    groups = None if group is None else frame[group].astype(str).to_numpy()
    return Prepared(table, target, place, movable, groups, one, tuple(notes))


def read_label(column: Any, label: str, positive: Hashable) -> tuple[np.ndarray, Any]:
    """Labels as 0 and 1, and what the table calls 1: yes, true and 1 stand for themselves, else `positive` says it."""
    found = column.unique().tolist()
    if len(found) < 2:
        raise ValueError(f"label={label!r} is {found[0]!r} in every row, so there is nothing to learn; add the others.")
    if len(found) > 2:
        raise ValueError(
            f"label={label!r} must hold two classes, such as 0 and 1; it holds {len(found)}: {found[:4]} and so on."
        )
    said = {value: str(value).strip().lower() for value in found}
    if positive is None:
        yes = [value for value, text in said.items() if text in _YES]
        no = [value for value, text in said.items() if text in _NO]
        if len(yes) != 1 or len(no) != 1:
            raise ValueError(
                f"label={label!r} holds {found[0]!r} and {found[1]!r}; say which of them is 1, such as "
                f"positive={found[0]!r}: the class that people try not to be."
            )
        one = yes[0]
    else:
        same = [value for value in found if value == positive or str(value) == str(positive)]
        if not same:
            raise ValueError(f"positive={positive!r} is not a value of label={label!r}, which holds {found}.")
        one = same[0]
    return (column == one).to_numpy(np.int64), one


def _counts_rows(column: Any) -> bool:
    """Whether a column is 1, 2, 3, ...: an index that was saved with the table."""
    if getattr(column.dtype, "kind", "O") not in "iu" or len(column) < 3:
        return False
    return bool(np.all(np.diff(column.to_numpy(np.int64)) == 1))


def _labeled(frame: Any, label: str, notes: list[str]) -> Any:
    empty = int(frame[label].isna().sum())
    if empty == len(frame):
        raise ValueError(f"label={label!r} says nothing in any row; give a column of labels.")
    if empty:
        notes.append(f"{empty:,} of {len(frame):,} rows have no label and were left out.")
    return frame[frame[label].notna()]


def _features(frame: Any, notes: list[str]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Columns of numbers by name, and which of them are quantities rather than words."""
    made: dict[str, np.ndarray] = {}
    numeric: list[str] = []
    for name in frame.columns:
        column = frame[name]
        kind = getattr(column.dtype, "kind", "O")
        if column.isna().all():
            notes.append(f"Column {name!r} is empty and was left out.")
        elif column.nunique(dropna=False) == 1:
            notes.append(f"Column {name!r} is the same in every row and was left out.")
        elif kind in "buif":
            made[name] = _filled(name, column.to_numpy(np.float64, na_value=np.nan), notes)
            numeric.append(name)
        else:
            made |= _coded(name, column, notes)
    return made, numeric


def _filled(name: str, values: np.ndarray, notes: list[str]) -> np.ndarray:
    if np.any(np.isinf(values)):
        raise ValueError(
            f"column {name!r} must be finite; {int(np.isinf(values).sum())} of {len(values)} entries are infinite. "
            "Correct or drop them first."
        )
    empty = np.isnan(values)
    if not empty.any():
        return values
    middle = float(np.median(values[~empty]))
    notes.append(f"Column {name!r}: {int(empty.sum()):,} empty entries were filled with the median, {middle:.4g}.")
    return np.where(empty, middle, values)


def _coded(name: str, column: Any, notes: list[str]) -> dict[str, np.ndarray]:
    """Words as columns of 0 and 1, the commonest one left out: all others are compared with it."""
    if getattr(column.dtype, "kind", "O") in "mM":
        raise ValueError(f"column {name!r} holds dates; make a number of it (an age in days), or ignore it.")
    words = column.astype(object).where(column.notna(), "(empty)").astype(str)
    counts = words.value_counts()
    if len(counts) > _WORDS:
        raise ValueError(
            f"column {name!r} holds {len(counts)} different words, such as {counts.index[0]!r}; at most {_WORDS} are "
            "taken as categories. Make numbers of it, or ignore it (--ignore)."
        )
    common = str(counts.index[0])
    notes.append(f"Column {name!r}: {len(counts)} words, each a column of 0 and 1 beside {common!r}.")
    return {f"{name}={word}": (words == word).to_numpy(np.float64) for word in sorted(counts.index[1:])}


def _check_strategic(strategic: Sequence[str] | None, made: dict[str, np.ndarray], numeric: list[str]) -> None:
    for name in strategic or ():
        if name in numeric:
            continue
        if any(key.startswith(f"{name}=") for key in made):
            raise ValueError(f"strategic: column {name!r} holds words, which have no direction; name numeric columns.")
        raise ValueError(
            f"strategic: column {name!r} is no feature with two values or more, so that nobody can change it; leave it "
            "out of --strategic."
        )


def _cut(made: dict[str, np.ndarray], numeric: list[str], notes: list[str]) -> None:
    """Cut columns whose scale a few people set at their outermost hundredths: else these drown the effect."""
    import warnings

    from performative._base.messages import PerformativeWarning
    from performative.tables.scaling import scale_columns

    for name in numeric:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", PerformativeWarning)
            scale_columns(made[name][:, None], [name], True)
        if said:
            low, high = np.quantile(made[name], _TAILS)
            made[name] = np.clip(made[name], low, high)
            notes.append(
                f"Column {name!r} was cut at {low:.4g} and {high:.4g}, its 1 % and 99 % quantiles: a few people set "
                "its scale (--scale standard leaves it)."
            )


def _free(name: str, taken: Any) -> str:
    while name in taken:
        name += "_"
    return name
