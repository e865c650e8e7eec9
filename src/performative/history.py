"""What a run leaves behind."""

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    import xarray

# Recorded once a record as an increment; shown as running totals.
RUNNING = ("time", "uploads")


@dataclasses.dataclass(frozen=True, eq=False)
class History:
    """Everything recorded, the start first.

    theta:         the global model, [repeats, records, ...] per leaf
    rounds:        the round of each record, [records]
    records:       per record: consensus, time, uploads, samples, distance_to_stable, ... [repeats, records]
    risk_rounds:   the rounds at which risks were measured, [points]
    risks:         decoupled and performative risk, [repeats, points]
    participation: realised mean weight of each client, [repeats, N], to hold against `weights`
    stopped_at:    the round at which a repeat left the numbers, -1 where it did not, [repeats]
    meta:          algorithm, seed, executor, precision, versions, device, seconds
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

    @property
    def status(self) -> str:
        """"completed", or "diverged" where at least one repeat left the numbers or the limit."""
        return "diverged" if np.any(self.stopped_at >= 0) else "completed"

    @property
    def final(self) -> Any:
        """The last global model, [repeats, ...] per leaf."""
        return jax.tree.map(lambda leaf: leaf[:, -1], self.theta)

    def __getitem__(self, name: str) -> np.ndarray:
        """A recorded quantity by name."""
        for shelf in (self.records, self.risks):
            if name in shelf:
                return shelf[name]
        raise KeyError(f"{name!r} was not recorded; recorded are {sorted([*self.records, *self.risks])}.")

    def __repr__(self) -> str:
        repeats, records = len(self.stopped_at), len(self.rounds)
        bad = int(np.sum(self.stopped_at >= 0))
        fate = "completed" if not bad else f"{bad} of {repeats} diverged"
        return (
            f"History({self.meta.get('algorithm', '?')}: {repeats} repeats, {int(self.rounds[-1])} rounds, "
            f"{records} records, {fate}, executor {self.meta.get('executor', '?')!r}, "
            f"{self.meta.get('seconds', 0.0):.2f} s)"
        )

    def to_xarray(self) -> "xarray.Dataset":
        """All of it as one data set with named dimensions."""
        import xarray as xr

        data: dict[str, Any] = {}
        leaves = jax.tree_util.tree_leaves_with_path(self.theta)
        single = len(leaves) == 1
        times = "round" if leaves and leaves[0][1].shape[1] == len(self.rounds) else "theta_round"
        for path, leaf in leaves:
            name = "theta" if single and not path else f"theta{jax.tree_util.keystr(path, simple=True, separator='.') and '.' + jax.tree_util.keystr(path, simple=True, separator='.')}"
            axes = [f"{name}_{axis}" for axis in range(leaf.ndim - 2)]
            data[name] = (("repeat", times, *axes), leaf)
        for name, values in self.records.items():
            data[name] = (("repeat", "round"), values)
        for name, values in self.risks.items():
            data[name] = (("repeat", "risk_round"), values)
        data["weights"] = (("client",), self.weights)
        if self.participation is not None:
            data["participation"] = (("repeat", "client"), self.participation)
        data["stopped_at"] = (("repeat",), self.stopped_at)
        coords = {"round": self.rounds, "risk_round": self.risk_rounds}
        return xr.Dataset(data, coords=coords, attrs={"meta": json.dumps(self.meta), "status": self.status})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one NetCDF file (compressed, no pickle). The file appears whole or not at all."""
        target = Path(path)
        part = target.with_name(f".{target.name}.part")
        dataset = self.to_xarray()
        packed = {str(name): {"zlib": True} for name, v in dataset.data_vars.items() if v.ndim}
        dataset.to_netcdf(part, engine="h5netcdf", encoding=packed)
        os.replace(part, target)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "History":
        """Read what `save` wrote. A theta of several leaves comes back as {name: array}."""
        import xarray as xr

        if not Path(path).exists():
            raise FileNotFoundError(f"no history at {path}")
        with xr.open_dataset(path, engine="h5netcdf") as file:
            data = file.load()
        names = [str(n) for n in data.data_vars]
        thetas = {n: data[n].to_numpy() for n in names if n == "theta" or n.startswith("theta.")}
        rest = {n: data[n] for n in names if n not in thetas}
        special = ("weights", "participation", "stopped_at")
        return cls(
            theta=thetas["theta"] if set(thetas) == {"theta"} else {k[6:]: v for k, v in thetas.items()},
            rounds=data["round"].to_numpy(),
            records={n: v.to_numpy() for n, v in rest.items() if v.dims == ("repeat", "round")},
            risk_rounds=data["risk_round"].to_numpy(),
            risks={n: v.to_numpy() for n, v in rest.items() if v.dims == ("repeat", "risk_round")},
            weights=data["weights"].to_numpy(),
            participation=data["participation"].to_numpy() if "participation" in rest else None,
            stopped_at=data["stopped_at"].to_numpy(),
            meta=json.loads(data.attrs["meta"]),
        ) if set(special) - {"participation"} <= set(rest) else _refuse(path)

    def plot(self, quantity: str | None = None, ax: Any = None, label: str | None = None) -> Any:
        """Mean and spread over repeats of one recorded quantity against rounds; returns the axes."""
        from performative.plotting import plot_history

        return plot_history(self, quantity, ax, label)


def _refuse(path: Any) -> Any:
    raise ValueError(f"{path} is not a history: it lacks weights or stopped_at.")
