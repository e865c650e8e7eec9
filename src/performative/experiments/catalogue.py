"""The experiments that there are: one TOML file each, in a folder for each paper."""

import importlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pydantic

from performative.errors import nearest
from performative.experiments.claims import Claim
from performative.experiments.outcome import Outcome

FOLDER = Path(__file__).parent
PAPERS = {
    "p_fedavg": "Jin et al. 2024, Performative Federated Learning (AAAI)",
    "p_fedavg_preprint": "Jin et al. 2023, Performative Federated Learning (preprint)",
    "profl": "Zheng et al. 2024, PROFL: Performative Robust Optimal Federated Learning",
    "pcsgd": "Li, Yemini and Wai 2024, Clipped SGD for Privacy Preserving Performative Prediction",
    "heterogeneity": "Joshi, Heterogeneity-aware Algorithms for Federated Optimization (slides)",
    "ours": "New results",
}


class Panel(pydantic.BaseModel, extra="forbid", frozen=True):
    """One axes of a figure: an array of the outcome, and how it is drawn."""

    data: str
    title: str = ""
    x: str = ""
    y: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    marks: tuple[str, ...] = ()
    kind: Literal["lines", "points", "bars"] = "lines"


class Experiment(pydantic.BaseModel, extra="forbid", frozen=True):
    """What one file says. `code` names a function of the paper's folder, called with the constants."""

    name: str
    title: str
    place: str
    code: str
    note: str = ""
    constants: dict[str, Any] = {}
    quick: dict[str, Any] = {}
    panels: tuple[Panel, ...] = ()
    claims: tuple[Claim, ...] = pydantic.Field(min_length=1)

    @pydantic.model_validator(mode="after")
    def _hangs_together(self) -> "Experiment":
        if strange := set(self.quick) - set(self.constants):
            raise ValueError(f"[quick] sets {sorted(strange)}, which [constants] does not have")
        ids = [claim.id for claim in self.claims]
        if twice := {one for one in ids if ids.count(one) > 1}:
            raise ValueError(f"claims share the id {sorted(twice)}")
        return self

    @property
    def paper(self) -> str:
        return self.name.split("/")[0]

    def settings(self, quick: bool) -> dict[str, Any]:
        """The constants of a full or of a quick run."""
        return self.constants | (self.quick if quick else {})

    def function(self) -> Callable[..., Outcome]:
        module, function = self.code.rsplit(".", 1)
        return getattr(importlib.import_module(f"performative.experiments.{self.paper}.{module}"), function)


def names(paper: str | None = None) -> list[str]:
    """All experiments, of one paper or of all, in the order of the papers."""
    if paper is not None and paper not in PAPERS:
        raise ValueError(f"there is no paper {paper!r}.{nearest(paper, PAPERS)}")
    folders = [paper] if paper is not None else list(PAPERS)
    return [f"{folder}/{path.stem}" for folder in folders for path in sorted((FOLDER / folder).glob("*.toml"))]


def find(name: str) -> Experiment:
    """One experiment by its name, such as "p_fedavg/fig1a"."""
    if name not in names():
        raise ValueError(f"there is no experiment {name!r}.{nearest(name, names())}")
    return read(FOLDER / f"{name}.toml", name)


def read(file: Path, name: str) -> Experiment:
    """An experiment from a file, checked."""
    try:
        return Experiment(name=name, **tomllib.loads(file.read_text()))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file.name}: {error}") from error
    except pydantic.ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise ValueError(f"{file.name}: {said}") from None
