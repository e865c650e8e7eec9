"""The result of a run."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import jax
import numpy as np

from performative._base.arguments import checked
from performative._base.files import read_target, write_whole
from performative._base.frames_out import final_cell, frame_of, latex_table
from performative._base.notebook import card, picture_of
from performative._deprecated import new_record

if TYPE_CHECKING:
    import xarray

    from performative.inference.outcome import Confidence

__all__ = ["History"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class History:
    """Everything that was recorded; the first record is the start.

    Attributes:
        theta: the global model, [repeats, records, ...] per leaf
        rounds: the round of each record, [records]
        records: consensus, time, uploads, samples, communications, distance_to_stable, ... [repeats, records];
            quantities of a round (consensus, server_step, ...) are NaN at the start and if nobody took part
        risk_rounds: the rounds at which risks were measured, [points]; not including the start
        risks: decoupled_risk, performative_risk and risk_spread (between clients), [repeats, points]
        weights: p_i, [N]
        participation: realized mean weight of each client, [repeats, N], to compare with `weights`; None under full
            participation
        stopped_at: the round at which a repeat became non-finite or exceeded the limit, -1 if it did not, [repeats]
        meta: algorithm, config, seed, executor, precision, versions, device, seconds; "stopped_by" if a callback ended
            the run; "metrics" with kind, label and unit of custom metrics
        clients: the quantities requested by `Record(clients=...)`, {name: [repeats, records, N]}; NaN for absent
            clients
        cohorts: with `Record(cohorts=True)`, who took part: "client", "weight" and "steps", [repeats, records, rows];
            an empty row has client -1
        models: the final models that clients' people see, [repeats, N, ...] per leaf, if clients have their own models
            (`sharing`); None if all share one, and in a live federation, where clients keep them
        trained: how often each entry of the model was trained, clients times rounds, [repeats, ...] per leaf, if
            clients carry parts of it (`pf.sharing.Rolling`); None if all train everything
    """

    theta: Any
    rounds: np.ndarray
    records: dict[str, np.ndarray]
    risk_rounds: np.ndarray
    risks: dict[str, np.ndarray]
    weights: np.ndarray
    participation: np.ndarray | None
    stopped_at: np.ndarray
    meta: dict[str, Any]
    clients: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    cohorts: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    models: Any = None
    trained: Any = None

    @property
    def status(self) -> str:
        """ "completed"; "diverged" if at least one repeat became non-finite or exceeded the limit; "failed" if the
        model never moved, or stopped moving (`meta["failed"]` gives the reason); "stopped" if a callback ended the run
        (`meta["stopped_by"]` names it)."""
        if np.any(self.stopped_at >= 0):
            return "diverged"
        if "failed" in self.meta:
            return "failed"
        return "stopped" if "stopped_by" in self.meta else "completed"

    @property
    def repeats(self) -> int:
        return len(self.stopped_at)

    @property
    def final(self) -> Any:
        """The last global model, [repeats, ...] per leaf."""
        return jax.tree.map(lambda leaf: leaf[:, -1], self.theta)

    def __getitem__(self, name: str) -> np.ndarray:
        """A recorded quantity by name."""
        if not isinstance(name, str):
            raise KeyError(f"name must be that of a recorded quantity, one of {self._recorded()}; got {name!r}.")
        for recorded in (self.records, self.risks):
            if (name := new_record(name)) in recorded:
                return recorded[name]
        raise KeyError(f"no {name!r} was recorded; choose from {self._recorded()}.")

    def _recorded(self) -> list[str]:
        return sorted([*self.records, *self.risks])

    def __contains__(self, name: object) -> bool:
        """Whether a quantity of that name was recorded."""
        return name in self.records or name in self.risks

    def __repr__(self) -> str:
        bad = int(np.sum(self.stopped_at >= 0))
        fate = f"{bad} of {self.repeats} diverged" if bad else self.status
        return (
            f"History({self.meta.get('algorithm', '?')}: {self.repeats} repeats, {int(self.rounds[-1])} rounds, "
            f"{len(self.rounds)} records, {fate}, executor {self.meta.get('executor', '?')!r}, "
            f"{self.meta.get('seconds', 0.0):.2f} s)"
        )

    def _repr_html_(self) -> str:
        names = [name for name in ("distance_to_stable", "distance_to_optimal", "performative_risk") if name in self]
        finals = [(f"final {name.replace('_', ' ')}", f"{np.nanmean(self[name][:, -1]):.4g}") for name in names]
        facts = [("rounds", int(self.rounds[-1])), ("repeats", self.repeats), ("status", self.status), *finals]
        picture = picture_of(self.plot(), "a recorded quantity against rounds") if [*self.records, *self.risks] else ""
        return card(f"History: {self.meta.get('algorithm', '?')}", facts, self.meta.get("notes", ()), picture)

    def to_xarray(self) -> "xarray.Dataset":
        """The whole history as one data set with named dimensions."""
        import xarray as xr

        data: dict[str, Any] = {}
        for name, leaf in _named_leaves("theta", self.theta):
            times = "round" if leaf.shape[1] == len(self.rounds) else "theta_round"
            data[name] = (("repeat", times, *(f"{name}_axis{axis}" for axis in range(leaf.ndim - 2))), leaf)
        for name, leaf in _named_leaves("models", self.models):
            data[name] = (("repeat", "client", *(f"{name}_axis{axis}" for axis in range(leaf.ndim - 2))), leaf)
        for name, leaf in _named_leaves("trained", self.trained):
            data[name] = (("repeat", *(f"{name}_axis{axis}" for axis in range(leaf.ndim - 1))), leaf)
        data |= {name: (("repeat", "round"), values) for name, values in self.records.items()}
        data |= {name: (("repeat", "risk_round"), values) for name, values in self.risks.items()}
        data |= {f"clients.{name}": (("repeat", "round", "client"), values) for name, values in self.clients.items()}
        data |= {f"cohorts.{name}": (("repeat", "round", "row"), values) for name, values in self.cohorts.items()}
        data["weights"] = (("client",), self.weights)
        if self.participation is not None:
            data["participation"] = (("repeat", "client"), self.participation)
        data["stopped_at"] = (("repeat",), self.stopped_at)
        coords = {"round": self.rounds, "risk_round": self.risk_rounds}
        return xr.Dataset(data, coords=coords, attrs={"meta": json.dumps(self.meta), "status": self.status})

    @checked
    def to_frame(self, kind: str = "pandas") -> Any:
        """A tidy table: one row per repeat and record, with `repeat`, `round` and all recorded quantities.

        Risks appear in the rows of the rounds in which they were measured, and are missing in others. kind: "pandas",
        or "polars" if installed.
        """
        rows = {
            "repeat": np.repeat(np.arange(self.repeats), len(self.rounds)),
            "round": np.tile(self.rounds, self.repeats),
        }
        rows |= {name: np.asarray(values).reshape(-1) for name, values in self.records.items()}
        places = np.searchsorted(self.rounds, self.risk_rounds)
        for name, values in self.risks.items():
            wide = np.full((self.repeats, len(self.rounds)), np.nan)
            wide[:, places] = values
            rows[name] = wide.reshape(-1)
        return frame_of(rows, kind)

    def to_latex(self, *names: str) -> str:
        """A table of final values in LaTeX (booktabs): mean and standard error over repeats of each of these
        quantities, None for all."""
        wanted = names or tuple(sorted([*self.records, *self.risks]))
        return latex_table(["", "final"], [[name, final_cell(self[name][:, -1])] for name in wanted])

    @checked
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one NetCDF file (compressed, no pickle). The write is atomic."""
        target, data = read_target(path, "a NetCDF file"), self.to_xarray()
        packed = {str(name): {"zlib": True} for name, values in data.data_vars.items()}
        # In memory first: HDF5 kills the process if the disk is full.
        write_whole(target, bytes(data.to_netcdf(None, engine="h5netcdf", encoding=packed)))
        return target

    @classmethod
    @checked
    def load(cls, path: str | os.PathLike[str]) -> "History":
        """Read a file written by `save`. A theta of several leaves is returned as {name: array}."""
        import xarray as xr

        if not Path(path).is_file():
            raise FileNotFoundError(f"path={str(path)!r}: there is no history; History.save creates one.")
        try:
            with xr.open_dataset(path, engine="h5netcdf") as file:
                data = file.load()
        except OSError:
            data = xr.Dataset()
        if not {"meta", "status"} <= set(data.attrs):
            raise ValueError(f"path={str(path)!r} is not a history written by History.save.")
        arrays = {str(name): data[name] for name in data.data_vars}

        def along(*dims: str) -> dict[str, np.ndarray]:
            return {n: a.to_numpy() for n, a in arrays.items() if a.dims == dims and n.partition(".")[0] != "theta"}

        return cls(
            theta=_tree("theta", arrays),
            rounds=data["round"].to_numpy(),
            records=along("repeat", "round"),
            risk_rounds=data["risk_round"].to_numpy(),
            risks=along("repeat", "risk_round"),
            weights=arrays["weights"].to_numpy(),
            participation=arrays["participation"].to_numpy() if "participation" in arrays else None,
            stopped_at=arrays["stopped_at"].to_numpy(),
            meta=json.loads(data.attrs["meta"]),
            clients=_under("clients.", arrays),
            cohorts=_under("cohorts.", arrays),
            models=_kept("models", arrays),
            trained=_kept("trained", arrays),
        )

    @checked
    def plot(self, quantity: str | None = None, ax: Any = None, label: str | None = None) -> Any:
        """Mean and spread over repeats of one recorded quantity against rounds; returns the axes."""
        from performative.plotting import plot_history

        return plot_history(self, quantity, ax, label)

    @checked
    def interval(self, level: float = 0.95) -> "Confidence":
        """Confidence intervals for the stable point from each repeat's records alone: `pf.confidence(history, level)`,
        which also accepts the problem and the algorithm."""
        from performative.inference.alone import alone

        return alone(self, level)


# What runs are compared by: the final value of a record, by name, or one number per repeat.
Measure = str | Callable[[History], np.ndarray]


def _named_leaves(prefix: str, tree: Any) -> list[tuple[str, Any]]:
    """("theta.body.weight", leaf), ..."""
    return [
        (".".join([prefix, *(_quote(jax.tree_util.keystr((step,), simple=True)) for step in path)]), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _tree(prefix: str, arrays: dict[str, Any]) -> Any:
    """The array of that name, or several as {name: array}."""
    found = {name: a.to_numpy() for name, a in arrays.items() if name.partition(".")[0] == prefix}
    if prefix in found:
        return found[prefix]
    names = [unquote(name.removeprefix(f"{prefix}.")) for name in found]
    if len(set(names)) < len(names):  # {"a.b": ...} alongside {"a": {"b": ...}}
        names = [name.removeprefix(f"{prefix}.") for name in found]
    return dict(zip(names, found.values(), strict=True))


def _kept(prefix: str, arrays: dict[str, Any]) -> Any:
    """The same as `_tree`, or None if there is none."""
    return _tree(prefix, arrays) if any(name.partition(".")[0] == prefix for name in arrays) else None


def _under(prefix: str, arrays: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): a.to_numpy() for name, a in arrays.items() if name.startswith(prefix)}


def _quote(key: str) -> str:
    """A key without "/", the separator in NetCDF names, and ".", the separator of keys."""
    return key.replace("%", "%25").replace("/", "%2F").replace(".", "%2E")
