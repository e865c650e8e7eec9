"""Experiment trackers: log the mean over repeats of all records, round by round. Imported when used."""

import importlib
import json
import os
from typing import Any

from performative.callbacks.news import News


def _imported(owner: str, module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"pf.callbacks.{owner} needs {package}: pip install {package}.") from error


class MLflow:
    """Log to MLflow: to a new run, or to the active one.

    Args:
        experiment, run_name: passed to MLflow; None for its default
        tracking_uri: passed to MLflow; None for its current setting
    """

    def __init__(self, experiment: str | None = None, run_name: str | None = None, tracking_uri: str | None = None):
        self._mlflow = _imported("MLflow", "mlflow", "mlflow")
        self.experiment, self.run_name, self.tracking_uri = experiment, run_name, tracking_uri
        self._began = False

    def begin(self, about: dict[str, Any], total: int) -> None:
        if self.tracking_uri is not None:
            self._mlflow.set_tracking_uri(self.tracking_uri)
        if self.experiment is not None:
            self._mlflow.set_experiment(self.experiment)
        self._began = self._mlflow.active_run() is None
        if self._began:
            self._mlflow.start_run(run_name=self.run_name)
        self._mlflow.log_params({name: str(about[name]) for name in ("algorithm", "seed", "dtype") if name in about})

    def __call__(self, news: News) -> None:
        for round, values in news.means():
            if values:
                self._mlflow.log_metrics(values, step=round)

    def close(self) -> None:
        if self._began:
            self._mlflow.end_run()
            self._began = False


class WandB:
    """Log to Weights & Biases; `settings` are passed to `wandb.init`."""

    def __init__(self, project: str | None = None, **settings: Any):
        self._wandb = _imported("WandB", "wandb", "wandb")
        self.project, self.settings = project, settings
        self._run: Any = None

    def begin(self, about: dict[str, Any], total: int) -> None:
        self._run = self._wandb.init(project=self.project, config=dict(about), **self.settings)

    def __call__(self, news: News) -> None:
        for round, values in news.means():
            if values:
                self._run.log(values, step=round)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None


class TensorBoard:
    """Write TensorBoard event files to `folder`, using `tensorboardX` or `torch.utils.tensorboard`."""

    def __init__(self, folder: str | os.PathLike[str]):
        try:
            self._module: Any = importlib.import_module("tensorboardX")
        except ModuleNotFoundError:
            try:
                self._module = importlib.import_module("torch.utils.tensorboard")
            except ModuleNotFoundError:
                self._module = _imported("TensorBoard", "tensorboardX", "tensorboardX")
        self.folder = os.fspath(folder)
        self._writer: Any = None

    def begin(self, about: dict[str, Any], total: int) -> None:
        self._writer = self._module.SummaryWriter(self.folder)
        self._writer.add_text("about", json.dumps(about, default=str))

    def __call__(self, news: News) -> None:
        for round, values in news.means():
            for name, value in values.items():
                self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
