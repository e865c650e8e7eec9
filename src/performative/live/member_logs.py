"""Logs that stay with the members of a federation: where they are, and what may leave."""

import dataclasses
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from performative._base.checks import check_counts
from performative._base.files import write_whole
from performative.audit.leaving import name_client, summarize
from performative.audit.people import ONLY_CLIENT
from performative.audit.schema import LogError
from performative.audit.travel import pack_summaries
from performative.live.telling import RequestRefused, TableFailed
from performative.live.wire import decode, digest, encode

_PLACE = "{client}"
_ANSWER = "audit-answer.bin"
_SENT = "audits.jsonl"
_URL = ".url"


@dataclasses.dataclass(frozen=True)
class MemberLogs:
    """[audit]: one log per member, on its own host; its sums may leave, rows never do.

    Attributes:
        path: folder, Parquet data set, .duckdb or .sqlite file, with {client} for the member's name or number; relative
            to the member's data folder. A file that ends in .url contains a database URL
        map: audit.toml, the same for all members: the role of each column. It is part of the app
        groups: column of the protected group
        least: cells with fewer people are dropped and counted
        epsilon, delta: privacy guarantee for each person, by adding noise. The answer is then computed once and sent
            again on every request: a second one with fresh noise would spend the budget twice
        beside: the folder of federation.toml, which contains `map` and is the default data folder
    """

    path: str
    map: str | None = None
    groups: str | None = None
    least: int = 10
    epsilon: float | None = None
    delta: float | None = None
    beside: str = "."

    def __post_init__(self) -> None:
        check_counts(least=self.least)
        if not self.path:
            raise ValueError("path must name a folder or a file of logs; got ''.")
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta go together: set both, or neither.")
        if self.epsilon is not None and not self.epsilon > 0:
            raise ValueError(f"epsilon must be above 0; got {self.epsilon:g}.")
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(f"delta must lie between 0 and 1; got {self.delta:g}.")
        if self._map is not None and not self._map.is_file():
            raise ValueError(f"map: there is no file {self.map!r} next to federation.toml.")

    @property
    def _map(self) -> Path | None:
        return None if self.map is None else Path(self.beside) / self.map

    @property
    def mark(self) -> str:
        """A digest of all settings that decide what leaves: server and member must have the same."""
        told = {name: value for name, value in dataclasses.asdict(self).items() if name not in ("map", "beside")}
        told["map"] = None if self._map is None else hashlib.sha256(self._map.read_bytes()).hexdigest()
        return digest(json.dumps(told, sort_keys=True).encode())

    def place(self, name: str, folder: str | os.PathLike[str] | None = None) -> Path | str:
        """One member's log on this machine."""
        path = Path(self.beside if folder is None else folder) / self.path.replace(_PLACE, name)
        if not path.exists():
            raise TableFailed(f"there are no logs path = {self.path!r} in the client's folder", f"{path} is missing")
        return path.read_text().strip() if path.suffix == _URL else path

    def answer(
        self, name: str, folder: str | os.PathLike[str] | None, memory: Path, asked: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The sums of one member's logs, without rows. What is sent is recorded in its own folder, `memory`."""
        if asked.get("mark") != self.mark:
            raise RequestRefused("the server's [audit] or its map differs; use the same app folder for both.")
        kept = memory / _ANSWER
        if self.epsilon is not None and kept.exists():
            about, arrays = decode(kept.read_bytes())
            if about["mark"] == self.mark:
                return about, arrays
        try:
            seen = summarize(self.place(name, folder), map=self._map, groups=self.groups, least=self.least,
                             epsilon=self.epsilon, delta=self.delta)  # fmt: skip
        except LogError as error:
            raise TableFailed("the client's logs cannot be summed", str(error)) from error
        seen = name_client(seen, name) if seen.clients == (ONLY_CLIENT,) else seen
        header, arrays = pack_summaries(seen)
        about = {"mark": self.mark, "made": round(time.time(), 3)}
        arrays["header"] = np.frombuffer(json.dumps(header, allow_nan=False).encode(), np.uint8)
        made = encode(about, arrays)
        if self.epsilon is not None:
            write_whole(kept, made, private=True)  # before it leaves
        facts = {"time": about["made"], "rows": seen.rows, "left_out": list(seen.suppressed),
                 "promise": seen.promise, "digest": hashlib.sha256(made).hexdigest()}  # fmt: skip
        with open(memory / _SENT, "a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
        return about, arrays
