"""Convert a user's table to numeric columns: report every change, and raise on what cannot be used."""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from performative._base.checks import nearest
from performative.assess.columns import CATEGORIES, is_dates, is_flag, is_identifier, stray_entry
from performative.assess.separated import NOTES
from performative.tables.any_table import check_flat
from performative.tables.frames import YES

# Labels with a known meaning, besides YES; for others, `positive` must say which is 1.
_NO = ("0", "0.0", "no", "n", "false", "f")
# Quantiles at which a column is clipped if a few people set its scale.
_TAILS = (0.01, 0.99)
# Tukey's outer fences (Exploratory Data Analysis, 1977): quartiles and this many interquartile ranges.
_FENCE = 3.0
ALONE = "everybody"
# People with the rarer label that a logistic model needs for each column (Peduzzi et al. 1996, J. Clin. Epidemiol. 49).
_EVENTS = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """Numeric columns, ready for `Problem.from_frame`.

    Attributes:
        frame: features, `label` of 0 and 1, and `client`
        label, client: names of these columns
        strategic: features that people can change
        group: one string per row, None if there is no group column
        positive: the label value that means 1
        notes: what was filled, clipped, encoded or left out
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
    label: Hashable,
    positive: Hashable,
    client: Hashable,
    strategic: Sequence[Hashable] | None,
    group: Hashable,
    ignore: Sequence[Hashable],
    rows: int,
    scale: str,
    seed: int,
) -> Prepared:
    """Check each column, and convert it to numbers."""
    frame = frame.rename(columns=str)
    if label is None:
        raise ValueError(f"label must name the column of labels; the table has {frame.columns.tolist()}.")
    # Columns may be named by numbers; here all names are text.
    label = str(label)
    client, group = (None if name is None else str(name) for name in (client, group))
    wanted = None if strategic is None else [str(name) for name in strategic]
    ignored = [str(name) for name in ignore]
    twice = frame.columns[frame.columns.duplicated()].unique().tolist()
    if twice:
        raise ValueError(f"column {twice[0]!r} occurs twice; keep one.")
    asked = [("label", label), ("client", client), ("group", group)]
    asked += [("strategic", name) for name in wanted or ()] + [("ignore", name) for name in ignored]
    for role, name in asked:
        if name is not None and name not in frame.columns:
            raise ValueError(f"{role}={name!r} is not a column of the table.{nearest(str(name), frame.columns)}")
    for name in frame.columns:
        if name not in ignored:
            check_flat(frame[name])
    for role, name in (("client", client), ("group", group)):
        if name is not None and name == label:
            raise ValueError(f"{role}={name!r} is the label; choose another column.")
    for role, name in (("label", label), ("client", client), ("group", group)):
        if name in ignored:
            raise ValueError(f"ignore: column {name!r} is the {role}, which is used; remove it from ignore.")
    notes: list[str] = list(frame.attrs.get(NOTES, ()))
    # Rows without a label may be the ones that explain why a column is text, such as the line of totals.
    left_out = {label, client, group, *ignored}
    strays = {name: stray_entry(frame[name].dropna()) for name in frame.columns if name not in left_out}
    unlabeled = int(frame[label].isna().sum())
    frame = _labeled(_without_names(frame, {name for _, name in asked}, notes), label, notes)
    for role, name in (("client", client), ("group", group)):
        if name is not None and (empty := int(frame[name].isna().sum())):
            raise ValueError(f"{role}={name!r} is missing in {empty} of {len(frame)} rows; fill or drop them first.")
    if len(frame) > rows:
        notes.append(f"{rows:,} of {len(frame):,} rows were drawn at random (use --rows for more).")
        frame = frame.sample(rows, random_state=seed).sort_index()
    frame = frame.reset_index(drop=True)
    if group is not None and (found := frame[group].nunique()) > max(CATEGORIES, len(frame) // 10):
        raise ValueError(f"group={group!r} has {found} values in {len(frame)} rows; choose a column with few groups.")
    if client is not None and (found := frame[client].nunique()) > max(CATEGORIES, 9 * len(frame) // 10):
        raise ValueError(
            f"client={client!r} has {found} values in {len(frame)} rows; choose a column with fewer clients."
        )
    answers, one = read_label(frame[label], label, positive, unlabeled)
    roles = {label, client, group} - {None}
    taken = [name for name in frame.columns if name not in roles and name not in ignored]
    made, numeric = _features(frame[taken], strays, notes)
    if not made:
        raise ValueError("no feature is left: all columns have another role, are ignored, or are constant.")
    if group is not None:
        notes.append(f"{group!r} is the group, and not used as a feature.")
    flags = [name for name in numeric if is_flag(frame[name])]
    free = [name for name in numeric if name not in flags]
    if wanted is None:
        told = "".join(f", but not {', '.join(map(repr, flags))} (0 or 1)" for _ in flags[:1])
        notes.append(
            f"People are assumed to be able to change all {len(free)} numeric columns{told} (see --strategic)."
        )
    others: dict[str | None, str] = {name: "ignored" for name in ignored}
    others |= {group: "the group", client: "the client", label: "the label"}
    _check_strategic(wanted, made, numeric, others)
    movable = tuple(free if wanted is None else dict.fromkeys(wanted))
    if not movable:
        told = f" other than {', '.join(map(repr, flags))} (0 or 1); name those that they can" if flags else ""
        raise ValueError(f"strategic: there is no numeric column that people could change{told}.")
    if scale == "auto":
        _cut(made, numeric, notes)
    rarer = int(min(answers.sum(), len(answers) - answers.sum()))
    if rarer < _EVENTS * len(made):
        notes.append(
            f"Only {rarer} people have the rarer label, for {len(made)} column{'s' * (len(made) > 1)} of the model: it "
            f"fits much that is chance. About {_EVENTS * len(made)} are needed; or ignore columns."
        )
    import pandas as pd

    table = pd.DataFrame(made)
    who = ALONE if client is None else frame[client].astype(str)
    target = label if label not in table.columns else _free("label", table.columns)
    place = _free("client" if client is None else client, [*table.columns, target])
    table = table.assign(**{target: answers, place: who})
    groups = None if group is None else frame[group].astype(str).to_numpy()
    return Prepared(table, target, place, movable, groups, one, tuple(notes))


def read_label(column: Any, label: str, positive: Hashable, unlabeled: int = 0) -> tuple[np.ndarray, Any]:
    """Labels as 0 and 1, and the value that means 1: yes, true and 1, or else `positive`. `unlabeled`: number of rows
    without a label, which were left out."""
    found = column.unique().tolist()
    if len(found) < 2:
        if unlabeled:
            raise ValueError(
                f"label={label!r} is {found[0]!r} in every row that has one, and missing in {unlabeled}, so there is "
                "nothing to learn. Words such as None and NA in a file are read as missing; write another one."
            )
        raise ValueError(f"label={label!r} is {found[0]!r} in every row, so there is nothing to learn; add other rows.")
    if len(found) > 2:
        raise ValueError(
            f"label={label!r} must have two classes, such as 0 and 1; it has {len(found)}: {found[:4]}"
            f"{' and so on' * (len(found) > 4)}."
        )
    said = {value: str(value).strip().lower() for value in found}
    if positive is None:
        yes = [value for value, text in said.items() if text in YES]
        no = [value for value, text in said.items() if text in _NO]
        if len(yes) != 1 or len(no) != 1:
            raise ValueError(
                f"label={label!r} contains {found[0]!r} and {found[1]!r}; specify which of them is 1: set "
                "positive= (--positive in the commands) to the class that people try to avoid."
            )
        one = yes[0]
    else:
        same = [value for value in found if _is_same(value, positive)]
        if not same:
            raise ValueError(f"positive={positive!r} is not a value of label={label!r}, which contains {found}.")
        one = same[0]
    return (column == one).to_numpy(np.int64), one


def _is_same(value: Any, asked: Any) -> bool:
    """Whether a label is the one asked for, which may be text: 2 and 2.0 are."""
    if value == asked or str(value) == str(asked):
        return True
    try:
        return not isinstance(value, (bool, str)) and float(value) == float(asked)
    except (TypeError, ValueError):
        return False


def _without_names(frame: Any, asked: set[Any], notes: list[str]) -> Any:
    """Leave out row numbers and identifiers, unless they have a role."""
    out = []
    for name in frame.columns:
        if name in asked:
            continue
        if _counts_rows(frame[name]):
            out.append(name)
            notes.append(f"Column {name!r} numbers the rows and was left out.")
        elif is_identifier(frame[name]) and not is_dates(frame[name]):  # dates are refused by name
            out.append(name)
            notes.append(f"Column {name!r} has a different value in every row, like an identifier, and was left out.")
    return frame.drop(columns=out)


def _counts_rows(column: Any) -> bool:
    """Whether a column is 1, 2, 3, ...: an index that was saved with the table."""
    if getattr(column.dtype, "kind", "O") not in "iu" or len(column) < 3:
        return False
    return bool(np.all(np.diff(column.to_numpy(np.int64)) == 1))


def _labeled(frame: Any, label: str, notes: list[str]) -> Any:
    empty = int(frame[label].isna().sum())
    if empty == len(frame):
        raise ValueError(f"label={label!r} is missing in every row; name a column with labels.")
    if empty:
        notes.append(f"{empty:,} of {len(frame):,} rows have no label and were left out.")
    return frame[frame[label].notna()]


def _features(frame: Any, strays: Mapping[str, Any], notes: list[str]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Numeric columns by name, and which of them are quantities rather than categories."""
    made: dict[str, np.ndarray] = {}
    numeric: list[str] = []
    for name in frame.columns:
        column = frame[name]
        kind = getattr(column.dtype, "kind", "O")
        if column.isna().all():
            notes.append(f"Column {name!r} is empty and was left out.")
        elif column.nunique(dropna=False) == 1:
            notes.append(f"Column {name!r} is constant and was left out.")
        elif kind in "buif":
            made[name] = _filled(name, column.to_numpy(np.float64, na_value=np.nan), notes)
            numeric.append(name)
        else:
            for key, values in _coded(name, column, strays[name], notes).items():
                free = _free(key, {*frame.columns, *made})
                if free != key:
                    notes.append(
                        f"The 0/1 column {key!r} is called {free!r}, because another column already has this name."
                    )
                made[free] = values
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
    notes.append(f"Column {name!r}: {int(empty.sum()):,} missing entries were set to the median, {middle:.4g}.")
    return np.where(empty, middle, values)


def _coded(name: str, column: Any, stray: tuple[str, bool] | None, notes: list[str]) -> dict[str, np.ndarray]:
    """Categories as 0/1 columns, without the most common one, which is the reference."""
    if is_dates(column):
        raise ValueError(
            f"column {name!r} contains dates; convert it to numbers (an age in days), or ignore it (--ignore)."
        )
    if stray is not None and stray[1]:
        raise ValueError(
            f"column {name!r} holds numbers, but {stray[0]!r} is not written as one. Write 12 for 12% and 1.5 for "
            "1,5, leave missing entries empty, or ignore the column (--ignore)."
        )
    words = column.astype(object).where(column.notna(), "(empty)").astype(str)
    counts = words.value_counts()
    if len(counts) > CATEGORIES:
        raise ValueError(
            f"column {name!r} has {len(counts)} distinct values, such as {counts.index[0]!r}; categorical columns may "
            f"have at most {CATEGORIES}. "
            + ("Convert it to numbers" if stray is None else f"It holds numbers, but also {stray[0]!r}: correct those")
            + ", or ignore it (--ignore)."
        )
    if stray is not None:
        notes.append(
            f"Column {name!r} holds numbers, but also {stray[0]!r}, so it is treated as categorical; if it is numeric, "
            "correct those."
        )
    common = str(counts.index[0])
    notes.append(f"Column {name!r}: {len(counts)} categories, encoded as 0/1 columns relative to {common!r}.")
    return {f"{name}={word}": (words == word).to_numpy(np.float64) for word in sorted(counts.index[1:])}


def _check_strategic(
    strategic: Sequence[str] | None, made: dict[str, np.ndarray], numeric: list[str], others: dict[str | None, str]
) -> None:
    """others: the columns that are not features, and what they are instead."""
    for name in strategic or ():
        if name in numeric:
            continue
        if name in others:
            raise ValueError(
                f"strategic: column {name!r} is {others[name]}, so people cannot change it; remove it from strategic."
            )
        if any(key.startswith(f"{name}=") for key in made):
            raise ValueError(
                f"strategic: column {name!r} is categorical, so it has no direction; name numeric columns."
            )
        raise ValueError(
            f"strategic: column {name!r} is not a feature with at least two values, so nobody can change it; remove it "
            "from strategic."
        )


def _cut(made: dict[str, np.ndarray], numeric: list[str], notes: list[str]) -> None:
    """Clip columns whose scale is set by a few people at their extreme percentiles; they would mask the effect. Where
    the percentiles are as extreme (few rows, or more than 1% of them), clip at the outer fences."""
    for name in numeric:
        values = made[name]
        if not _few_set_the_scale(values, name):
            continue
        low, high = np.quantile(values, _TAILS)
        why = "its 1% and 99% quantiles"
        if _few_set_the_scale(np.clip(values, low, high), name):
            lower, upper = np.quantile(values, (0.25, 0.75))
            if upper > lower:
                low, high = lower - _FENCE * (upper - lower), upper + _FENCE * (upper - lower)
                why = f"{_FENCE:g} interquartile ranges beyond its quartiles"
        made[name] = np.clip(values, low, high)
        notes.append(
            f"Column {name!r} was clipped at {low:.4g} and {high:.4g}, {why}: a few people set its scale "
            "(--scale standard disables this)."
        )


def _few_set_the_scale(values: np.ndarray, name: str) -> bool:
    import warnings

    from performative._base.messages import PerformativeWarning
    from performative.tables.scaling import scale_columns, too_large

    if too_large(values[:, None]).any():
        return True
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", PerformativeWarning)
        scale_columns(values[:, None], [name], True)
    return bool(said)


def _free(name: str, taken: Any) -> str:
    while name in taken:
        name += "_"
    return name
