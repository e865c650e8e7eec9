"""The queries that an audit runs on the rows, in order: faults, moments, missing people, groups."""

from collections import Counter
from typing import Any

import ibis
import numpy as np

from performative.audit.files import ROWS_OF_A_FILE, Table
from performative.audit.missing import Sums, no_sums
from performative.audit.moments import MOMENT_BYTES, Moments
from performative.audit.people import ONLY_CLIENT, People
from performative.audit.queries import cross_moments, engine_of, fetch, small_table
from performative.audit.schema import LogError
from performative.audit.summaries import Summaries
from performative.audit.tally import GROUPS
from performative.audit.values import finite, is_finite
from performative.audit.weighted import Weighted

# Names of unknown deployments kept for the message; all are counted.
_NAMES = 1000
_CELL = ("client", "deployment")


class Collector:
    """Queries the engine about prepared rows. tables: the files the rows come from, for messages."""

    def __init__(self, people: People, tables: list[Table]):
        self.people, self.tables = people, {table.name: table for table in tables}
        self.name = tables[0].name
        self.totals = self._totals()
        self._refuse_faults()
        self.clients = self._client_names()

    def summaries(self) -> Summaries:
        """All sums except those for corrections, which `always` and `weighted` return when needed."""
        people, totals, c = self.people, self.totals, self.people.columns
        labeled, unlabeled, scores = self._moments()
        lost = int(totals["lost"])
        dropped = {
            "an infinite label": int(totals["endless"]),
            "an empty or infinite feature": lost,
            "no client": int(totals["no_client"]),
            "no deployment": int(totals["no_deployment"]),
            "a deployment that is not listed": int(totals["unlisted"]),
        }
        grouped = bool(people.decides or c.group)
        return Summaries(
            columns=c, deployments=people.deployments, settings=people.settings, decides=people.decides,
            labeled=labeled, unlabeled=unlabeled, scores=scores,
            incomplete=self._incomplete() if lost else no_sums(self.clients, people.width + 1),
            counts=self._counts() if grouped else {},
            rows=int(totals["rows"]), dropped=Counter(dropped),
            empty=Counter({name: int(totals.get(f"lost{j}", 0)) for j, name in enumerate(c.features)}),
            unknown=self._unknown() if totals["unlisted"] else Counter(),
            odd=self.odd_label() if totals["odd"] else None,
            undecided=int(totals["undecided"]) if grouped else 0, no_group=int(totals["no_group"]) if grouped else 0,
            no_chance=int(totals["no_chance"]),
        )  # fmt: skip

    def _totals(self) -> dict[str, float]:
        answer = fetch(totals_query(self.people)) | fetch(middle_query(self.people))
        if answer["lost"][0]:
            answer |= fetch(lost_query(self.people))
        return {name: float(np.nan_to_num(np.float64(values[0]))) for name, values in answer.items()}

    def _refuse_faults(self) -> None:
        c, totals = self.people.columns, self.totals
        if totals["wrong_chance"]:
            chance = self.people.rows.propensity
            file, row, value = self._first((chance < 0) | (chance > 1), "propensity")
            raise LogError(f"must be a probability from 0 to 1; got {value:g}.", file, row, c.propensity or "")
        cells, q = int(totals["clients"]) * len(self.people.deployments.names), len(self.people.measured)
        if 8 * cells * (q * (q + 1) + 1) > MOMENT_BYTES:
            raise LogError(
                f"contains {totals['clients']:.0f} distinct clients, too many for {q} columns and "
                f"{len(self.people.deployments.names)} deployments; is it a person's id?",
                self.name, column=c.client or "",
            )  # fmt: skip
        if totals["groups"] > GROUPS:
            raise LogError(
                f"contains more than {GROUPS} distinct groups; a group is a trait that many share, not a person's id.",
                self.name, column=c.group or "",
            )  # fmt: skip
        if 72 * cells * totals["groups"] > MOMENT_BYTES and c.group:
            raise LogError(
                f"{totals['clients']:.0f} clients by {len(self.people.deployments.names)} deployments by "
                f"{totals['groups']:.0f} groups are too many to count; is the client or the group column a person's id?"
            )

    def _first(self, wrong: Any, column: str) -> tuple[str, str, float]:
        """File, row and value of the first such row; the source's name if rows have no file and number."""
        rows, people = self.people.rows.filter(wrong), self.people
        places = [name for name in (people.file, people.row) if name]
        found = fetch(
            rows.order_by(places).limit(1).select(column, *places) if places else rows.limit(1).select(column)
        )
        if not people.file or not people.row:
            return self.name, "", float(found[column][0])
        table = self.tables[str(found[people.file][0])]
        return table.name, table.row(int(found[people.row][0]) % ROWS_OF_A_FILE), float(found[column][0])

    def odd_label(self) -> tuple[str, str, float]:
        """A label that is neither 0 nor 1, and its location."""
        label = self.people.rows.label
        if self.totals["endless"] and not self.totals["odd"] > self.totals["endless"]:
            return self.name, "", float("inf")
        return self._first(label.notnull() & (label != 0) & (label != 1), "label")

    def _client_names(self) -> tuple[str, ...]:
        if not self.people.columns.client:
            return (ONLY_CLIENT,)
        rows = self.people.rows
        found = fetch(rows.filter(rows.client.notnull()).select("client").distinct())
        return tuple(sorted(found["client"].tolist()))

    def _codes(self, keys: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes of client, deployment and stratum."""
        at = {name: i for i, name in enumerate(self.clients)}
        t = {name: i for i, name in enumerate(self.people.deployments.names)}
        client = np.array([at[name] for name in keys["client"]], np.int64)
        deployment = np.array([t[name] for name in keys["deployment"]], np.int64)
        stratum = keys["stratum"].astype(np.int64) if "stratum" in keys else np.zeros(len(client), np.int64)
        return client, deployment, stratum

    @property
    def _keys(self) -> list[str]:
        return [*_CELL, *(["stratum"] if self.people.strata > 1 else [])]

    def _center(self, width: int) -> np.ndarray:
        return np.array([self.totals[f"middle{j}"] for j in range(width)])

    def _made(self, keys: dict[str, np.ndarray], columns: int, *arrays: np.ndarray) -> Moments:
        c = self.people.columns
        names = (*c.features, *([c.label] if c.label else []))[:columns]
        count, mean, squares = arrays
        parts = (*self._codes(keys), count, mean[:, :columns], squares[:, :columns, :columns])
        return Moments(self.clients, self.people.deployments.names, tuple(names), *parts)

    def moments_of(self, rows: Any) -> tuple[Moments, Moments]:
        """Moments of labeled rows (of all rows if there is no label), and of unlabeled rows."""
        people, q = self.people, len(self.people.measured)
        split = people.columns.label is not None and self.totals["unlabeled"] > 0
        cell = _CELL if people.columns.client else _CELL[1:]
        asked = [*cell, *self._keys[2:], *(["has"] if split else [])]
        keys, *arrays = cross_moments(rows, asked, people.measured, self._center(q), cell)
        keys.setdefault("client", np.full(len(keys["deployment"]), ONLY_CLIENT, object))
        has = keys["has"] == 1 if split else np.ones(len(keys["client"]), bool)
        both = [self._made({k: v[use] for k, v in keys.items()}, width, *(a[use] for a in arrays))
                for use, width in ((has, q), (~has, people.width))]  # fmt: skip
        return both[0], both[1]

    def _moments(self) -> tuple[Moments, Moments, tuple[Sums, Sums]]:
        rows = self.people.rows.filter(self.people.rows.fit)
        labeled, unlabeled = self.moments_of(rows)
        nothing = no_sums(self.clients, 1)
        if not (len(unlabeled.count) or self.totals["lost"]) or not self._has_score:
            return labeled, unlabeled, (nothing, nothing)
        return labeled, unlabeled, (self._sums(rows.filter(rows.has), ["score"]) if self.people.columns.label
                                    else self._sums(rows, ["score"]),
                                    self._sums(rows.filter(~rows.has), ["score"]) if self.people.columns.label
                                    else nothing)  # fmt: skip

    @property
    def _has_score(self) -> bool:
        return bool(self.people.columns.score) or (self.people.models is not None and self.people.asks_score)

    def _sums(self, rows: Any, columns: list[str]) -> Sums:
        """Sums of each column separately, about its overall mean."""
        people = self.people
        middle = [self.totals[f"middle{[*people.measured, 'score'].index(name)}"] for name in columns]
        d = rows.select(*self._keys, **{f"d{j}": finite(rows[n]) - middle[j] for j, n in enumerate(columns)})
        asked: dict[str, Any] = {"rows": d.count()}
        for j in range(len(columns)):
            asked |= {f"n{j}": d[f"d{j}"].count(), f"s{j}": d[f"d{j}"].sum(), f"t{j}": (d[f"d{j}"] ** 2).sum()}
        found = fetch(d.group_by(self._keys).agg(**asked))
        n, s, t = (
            np.nan_to_num(np.stack([found[f"{kind}{j}"] for j in range(len(columns))], axis=1).astype(np.float64))
            for kind in "nst"
        )
        shift = s / np.maximum(n, 1.0)
        return Sums(
            self.clients, *self._codes(found), found["rows"].astype(np.float64), n, np.array(middle) + shift,
            np.maximum(t - n * shift**2, 0.0),
        )  # fmt: skip

    def _incomplete(self) -> Sums:
        """Rows with a missing feature: sums of their other columns."""
        r = self.people.rows
        own = self.people.measured[: self.people.width]
        return self._sums(r.filter(r.known & ~r.good & ~r.endless), [*own, "score"])

    def _counts(self) -> dict[tuple[str, str, str, int, int], int]:
        r, good = self.people.rows, self.people.settings.decision.qualified
        qualified = ibis.cases((r.label == good, 1), (r.label == 1 - good, 0), else_=2)
        decided = ibis.cases((r.accepted == 1, 1), (r.accepted == 0, 0), else_=2)
        rows = r.filter(r.known & r.group.notnull()).mutate(qualified=qualified, decided=decided)
        keys = ["client", "deployment", "group", "decided", "qualified"]
        found = fetch(rows.group_by(keys).agg(n=rows.count()))
        lines = zip(*(found[key].tolist() for key in keys), found["n"].tolist(), strict=True)
        return {(c, t, g, int(a), int(q)): int(n) for c, t, g, a, q, n in lines}

    def _unknown(self) -> Counter[str]:
        r = self.people.rows
        rows = r.filter(r.deployment.notnull() & ~r.deployment.isin(list(self.people.deployments.names)))
        found = fetch(rows.group_by("deployment").agg(n=rows.count()).order_by(ibis.desc("n")).limit(_NAMES))
        return Counter(dict(zip(found["deployment"].tolist(), map(int, found["n"]), strict=True)))

    def always(self) -> tuple[Moments, Moments]:
        """People whom every deployed model accepts, with a label and without."""
        return self.moments_of(self.people.always(self.people.rows.filter(self.people.rows.fit)))

    def weighted(self, origin: np.ndarray) -> Weighted:
        """Labeled rows, weighted by 1 / logged propensity, about the cell means [C T, q] of a first pass."""
        people, q = self.people, len(self.people.measured)
        rows = people.rows.filter(people.rows.fit)
        rows = rows.filter(rows.propensity > 0)
        rows = rows.filter(rows.has) if people.columns.label else rows
        many = len(people.deployments.names)
        cells = {
            "client": [name for name in self.clients for _ in range(many)],
            "deployment": [name for _ in self.clients for name in people.deployments.names],
        }
        own = {f"m{j}": origin[:, j] for j in range(q)}
        met = rows.join(small_table({**cells, **own}, engine_of(rows)), list(_CELL))
        d = met.select(
            *_CELL, w=1.0 / met.propensity, **{f"d{j}": met[n] - met[f"m{j}"] for j, n in enumerate(people.measured)}
        )
        asked: dict[str, Any] = {"w": d.w.sum(), "v": (d.w * d.w).sum()}
        for j in range(q):
            x = d[f"d{j}"]
            asked |= {f"s{j}": (d.w * x).sum(), f"t{j}": (d.w * d.w * x).sum(), f"u{j}": (d.w * d.w * x * x).sum()}
            asked |= {f"s{j}_{k}": (d.w * x * d[f"d{k}"]).sum() for k in range(j + 1)}
        found = fetch(d.group_by(list(_CELL)).agg(**asked))
        client, deployment, _ = self._codes(found)
        second = np.zeros((len(client), q, q))
        for j in range(q):
            for k in range(j + 1):
                second[:, j, k] = second[:, k, j] = found[f"s{j}_{k}"]
        first, doubled, squares = (np.stack([found[f"{kind}{j}"] for j in range(q)], axis=1) for kind in "stu")
        return Weighted(
            self.clients, client, deployment, origin[client * many + deployment], found["w"], found["v"], first, second,
            doubled, squares,
        )  # fmt: skip


def totals_query(people: People) -> Any:
    """One row: how many rows have each fault, and how many clients and groups there are."""
    r = people.rows
    label, chance = r.label, r.propensity
    odd = (label.notnull() & (label != 0) & (label != 1)) | r.endless
    asked = {
        "rows": r.count(),
        "no_client": r.client.isnull().sum(),
        "no_deployment": r.deployment.isnull().sum(),
        "unlisted": (r.deployment.notnull() & ~r.deployment.isin(list(people.deployments.names))).sum(),
        "lost": (r.known & ~r.good & ~r.endless).sum(),
        "endless": (r.known & r.endless).sum() if people.columns.label else ibis.literal(0),
        "odd": odd.sum() if people.columns.label else ibis.literal(0),
        "unlabeled": (r.fit & ~r.has).sum() if people.columns.label else ibis.literal(0),
        "clients": r.client.nunique() if people.columns.client else ibis.literal(1),
        "groups": r.group.nunique() if people.columns.group else ibis.literal(1),
        "undecided": (r.known & r.accepted.isnull()).sum() if people.decides else ibis.literal(0),
        "no_group": (r.known & r.group.isnull()).sum() if people.columns.group else ibis.literal(0),
    }
    chances = {
        "no_chance": (r.fit & ~(chance > 0).fill_null(False)).sum(),
        "wrong_chance": ((chance < 0) | (chance > 1)).sum(),
    }
    asked |= chances if people.columns.propensity else dict.fromkeys(chances, ibis.literal(0))
    return r.agg(**asked)


# Rows whose mean is close enough to the overall mean to center sums on; if not, the sums are taken again.
_GLANCE = 20_000


def middle_query(people: People) -> Any:
    """One row: means over the first rows, to center sums on."""
    rows = people.rows.filter(people.rows.fit).limit(_GLANCE)
    return rows.agg(**{f"middle{j}": rows[name].mean() for j, name in enumerate([*people.measured, "score"])})


def lost_query(people: People) -> Any:
    """One row: how many rows lack each feature."""
    r = people.rows
    return r.agg(**{f"lost{j}": (r.known & ~is_finite(r[name])).sum() for j, name in enumerate(people.seen)})
