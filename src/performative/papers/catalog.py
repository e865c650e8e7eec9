"""The catalog of experiments: one TOML file each, in one folder per paper."""

import importlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pydantic

from performative._base import plugins
from performative._base.checks import nearest
from performative.papers.claims import Claim
from performative.papers.outcome import Outcome

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
    """One panel of a figure: an array of the outcome and how to draw it."""

    data: str
    title: str = ""
    x: str = ""
    y: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    marks: tuple[str, ...] = ()
    kind: Literal["lines", "points", "bars"] = "lines"


class Experiment(pydantic.BaseModel, extra="forbid", frozen=True):
    """The contents of one experiment file.

    Attributes:
        code: A function of the paper's folder (or "paper.module.function") that takes the constants.
        caption: The paper's own caption.
        note: Where we depart from the paper and why; "{name}" is replaced by the constant of that name.
    """

    name: str
    title: str
    place: str
    code: str
    caption: str = ""
    note: str = ""
    constants: dict[str, Any] = {}
    quick: dict[str, Any] = {}
    panels: tuple[Panel, ...] = ()
    claims: tuple[Claim, ...] = pydantic.Field(min_length=1)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _whose(cls, told: dict[str, Any]) -> dict[str, Any]:
        """Set the default `kind` of each claim: "own" in the folder of our own results, else "paper"."""
        kind = "own" if str(told.get("name")).startswith("ours/") else "paper"
        claims = told.get("claims", ())
        whole = isinstance(claims, (list, tuple)) and all(isinstance(one, dict) for one in claims)
        return told | {"claims": [{"kind": kind} | one for one in claims]} if whole else told

    @pydantic.model_validator(mode="after")
    def _hangs_together(self) -> "Experiment":
        if strange := set(self.quick) - set(self.constants):
            raise ValueError(f"[quick] sets {sorted(strange)}, which [constants] does not define")
        try:
            self.note.format(**self.constants)
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"note: {{{error}}} is not a constant of this file") from error
        ids = [claim.id for claim in self.claims]
        if twice := {one for one in ids if ids.count(one) > 1}:
            raise ValueError(f"claims share the id {sorted(twice)}")
        return self

    @property
    def paper(self) -> str:
        return self.name.split("/")[0]

    def settings(self, quick: bool) -> dict[str, Any]:
        """The constants of a full or a quick run."""
        return self.constants | (self.quick if quick else {})

    def noted(self, quick: bool) -> str:
        """The note with its constants filled in."""
        return self.note.format(**self.settings(quick))

    def function(self) -> Callable[..., Outcome]:
        paper, _, rest = self.code.partition(".")
        owner, code = (paper, rest) if paper in PAPERS else (self.paper, self.code)
        module, function = code.rsplit(".", 1)
        where = f"performative.papers.{owner}" if owner in PAPERS else papers()[owner].__name__
        return getattr(importlib.import_module(f"{where}.{module}"), function)


def papers() -> dict[str, Any]:
    """Our papers with their titles; plugins (`performative.experiments`) map to packages with the TOML files."""
    return plugins.add_to(dict(PAPERS), "experiments")


def _folder(paper: str) -> Path:
    return FOLDER / paper if paper in PAPERS else Path(papers()[paper].__path__[0])


def names(paper: str | None = None) -> list[str]:
    """The experiments of one paper, or of all our papers in order."""
    if paper is not None and paper not in papers():
        raise ValueError(f"there is no paper {paper!r}.{nearest(paper, papers())}")
    chosen = [paper] if paper is not None else list(PAPERS)
    return [f"{one}/{path.stem}" for one in chosen for path in sorted(_folder(one).glob("*.toml"))]


def find(name: str) -> Experiment:
    """One experiment by its name, such as "p_fedavg/fig1a"."""
    known = [one for paper in papers() for one in names(paper)]
    if name not in known:
        raise ValueError(f"there is no experiment {name!r}.{nearest(name, known)}")
    paper, _, file = name.partition("/")
    return read(_folder(paper) / f"{file}.toml", name)


def read(file: Path, name: str) -> Experiment:
    """Read and validate an experiment file."""
    try:
        return Experiment(name=name, **tomllib.loads(file.read_text()))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file.name}: {error}") from error
    except pydantic.ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise ValueError(f"{file.name}: {said}") from None
