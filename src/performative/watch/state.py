"""The state of a watch on disk: one file, written atomically."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from performative._base.files import Damaged, read_sealed, write_sealed
from performative.watch.alarms import Alarms
from performative.watch.batch import ONLY_CLIENT, Schema
from performative.watch.seen import Seen
from performative.watch.series import Series
from performative.watch.settings import Settings
from performative.watch.tally import History, Tally

_FORMAT = 1


def save(watch: Any, path: Path) -> None:
    """Save a `Watch`: arrays and JSON in an .npz with a leading digest, written to a new file, flushed and renamed."""
    told = {name: one.to_dict() for name, one in watch.series.items()}
    arrays = {f"{i}/{name}": value for i, (_, held) in enumerate(told.values()) for name, value in held.items()}
    models = None
    if watch.models is not None:
        models, held = watch.models.to_dict()
        arrays |= {f"models/{name}": value for name, value in held.items()}
    facts = {
        "format": _FORMAT,
        "settings": watch.settings.to_dict(),
        "schema": None if watch.schema is None else [watch.schema.columns, watch.schema.parameters],
        "series": {name: one for name, (one, _) in told.items()},
        "models": models,
        "previous": watch.previous,
        "people": watch.people.to_dict(),
        "seen": watch.seen.to_dict(),
        "tally": watch.tally.to_dict(),
        "history": [watch.history.points, watch.history.every],
        "alarms": watch.alarms.raised,
        "last_time": watch.last_time,
    }
    file = io.BytesIO()
    np.savez(file, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    write_sealed(path, file.getvalue())


def load(path: Path, make: Callable[[Settings], Any]) -> Any:
    """Load what `save` wrote; `make` creates an empty watch."""
    content = read_sealed(path)
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = dict(stored)
    facts = json.loads(arrays.pop("facts").tobytes())
    if facts["format"] != _FORMAT:
        raise Damaged(f"{path} was written by another version; start a new state.")
    watch = make(Settings(**facts["settings"]))
    if facts["schema"] is not None:
        watch.schema = Schema(*(tuple(names) for names in facts["schema"]))
    for i, (name, one) in enumerate(facts["series"].items()):
        watch.series[name] = Series.from_dict(one, _under(arrays, f"{i}/"))
    _check_shares(path, watch)
    if facts["models"] is not None:
        watch.models = Series.from_dict(facts["models"], _under(arrays, "models/"))
    previous = facts["previous"]
    watch.previous = None if previous is None else (previous[0], previous[1])
    watch.people.read(facts["people"])
    watch.seen, watch.tally = Seen.from_dict(facts["seen"]), Tally.from_dict(facts["tally"])
    watch.history, watch.alarms = History(*facts["history"]), Alarms(facts["alarms"])
    watch.last_time = facts["last_time"]
    return watch


def _check_shares(path: Path, watch: Any) -> None:
    """Earlier versions let clients join rows that name none, whose share of the evidence then fell from 1 to 0.9."""
    first = {name for name, series in watch.series.items() if series.first["at"] == 1}
    if watch.settings.clients is None and first == {ONLY_CLIENT} and len(watch.series) > 1:
        raise Damaged(
            f"{path}: the first batches named no client and later ones did, which an earlier version accepted; its "
            "evidence is not valid. Start a new state."
        )


def _under(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
