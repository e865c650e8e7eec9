"""What parts declare about themselves, so analyses need not guess.

A fact is a field, property or method of a part that others rely on: what it cites, how it draws, what bounds one
person's influence. The base class of each slot has a default that promises nothing, and analyses read facts, never
types. For a guarantee a fact counts only if the part's *own* class declares it: a subclass may override anything, so it
inherits none. What a class outside this package declares is its author's claim, and listed as such.
"""

import contextlib
import contextvars
import dataclasses
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import numpy as np

from performative._base.describe import shown
from performative._deprecated import rename_hooks
from performative.types import ArrayLike

__all__ = ["AbstractPart", "Bound", "Uncertified", "chain", "cites", "declared", "relying", "states"]

F = TypeVar("F", bound=Callable[..., Any])
_relied: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("relied", default=None)


class AbstractPart(eqx.Module):
    """What every part may declare.

    Args:
        references: keys of `performative.papers.citations.bibliography`, or whole BibTeX entries, for `pf.cite`; ()
            means that nothing needs to be cited
        ignores_data: whether it reads nobody's data beyond what its slot receives: for participation and its parts, no
            losses or updates; for a channel the update, for an aggregator the uploads, for deployment the models
        is_plain: whether it is the slot's default behavior: the mean gradient, the mean of updates, no change
    """

    references: ClassVar[tuple[str, ...]] = ()
    ignores_data: ClassVar[bool] = False
    is_plain: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        rename_hooks(cls)

    def __repr__(self) -> str:
        return shown(self)

    @classmethod
    def more_references(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Further `references` that depend on field values, which may come from a stored description."""
        return ()


class Uncertified(Exception):
    """Why nothing can be guaranteed. A fact may raise it to give the reason."""


@dataclasses.dataclass(frozen=True)
class Bound:
    """What limits one person's, or one client's, influence on a sum, and the noise on that sum.

    Attributes:
        clip: the largest norm of one's contribution each time it is in the sum
        noise_multiplier: standard deviation of the noise on the whole sum, divided by the clip
        memory_clip: the largest norm that a memory adds to the mean in later steps, None if nothing is replayed
        owner: the name of the part that clips, for messages
    """

    clip: ArrayLike
    noise_multiplier: ArrayLike
    memory_clip: ArrayLike | None = None
    owner: str = "the part"


def one_number(value: ArrayLike, name: str) -> float:
    """A fact as a number; a guarantee is for one value, not for several."""
    array = np.asarray(value, float)
    if array.ndim:
        raise Uncertified(f"{name} varies; a guarantee is for one value")
    return float(array)


def declared(part: object, fact: str, *arguments: object) -> Any:
    """The value of `fact` that the part's own class declares, None if it declares nothing.

    A method is called with `arguments`. A function (a loss) declares facts by its attributes. Within `relying()`,
    claims from outside this package are recorded.
    """
    kind = part if isinstance(part, types.FunctionType) else type(part)
    if fact not in vars(kind):
        return None
    found = getattr(part, fact)
    found = found(*arguments) if callable(found) else found
    heard = _relied.get()
    if heard is not None and found is not None and found is not False and not is_ours(kind):
        said = f"{kind.__module__}.{kind.__qualname__}: {fact}"
        if said not in heard:
            heard.append(said)
    return found


@contextlib.contextmanager
def relying() -> Iterator[list[str]]:
    """Collect "module.Part: fact" for every fact read inside that this package does not declare itself."""
    before, heard = _relied.get(), list[str]()
    token = _relied.set(heard)
    try:
        yield heard
    finally:
        _relied.reset(token)
        if before is not None:
            before += [said for said in heard if said not in before]


def is_ours(kind: Any) -> bool:
    """Whether a class or function is defined in this package, and found there under its name."""
    module = getattr(kind, "__module__", None) or ""
    if module.split(".")[0] != __name__.split(".")[0]:
        return False
    here: Any = sys.modules.get(module)
    for name in kind.__qualname__.split("."):
        here = getattr(here, name, None)
    return here is kind


def said(part: object, fact: str, *arguments: object) -> Any:
    """What a part declares by a method, possibly inherited: good for a hint or an attack, not for a guarantee."""
    try:
        return getattr(part, fact)(*arguments)
    except Uncertified:
        return None


def said_bound(part: eqx.Module) -> Bound | None:
    """The outermost `bound` declared by a part or by the parts inside it."""
    found = (said(one, "bound") for one in chain(part) if hasattr(one, "bound"))
    return next((bound for bound in found if bound is not None), None)


def chain(part: Any, kind: type = AbstractPart) -> list[Any]:
    """The part and all parts in its fields, including tuples and lists; outermost first.

    Only those of `kind`: parts by default (or the base class of a slot, or `object` for every record).
    """
    found = [part] if isinstance(part, kind) else []
    values = [getattr(part, field.name, None) for field in dataclasses.fields(part)]
    for value in values:
        for held in value if isinstance(value, (tuple, list)) else (value,):
            if dataclasses.is_dataclass(held) and not isinstance(held, type):
                found += chain(held, kind)
    return found


def cites(*references: str) -> Callable[[F], F]:
    """`references` for anything but a part: @cites("perdomo2020performative") above a function."""
    return states(references=references)


def states(**facts: Any) -> Callable[[F], F]:
    """Facts of a function, such as @states(convex=True) above a loss."""

    def mark(function: F) -> F:
        vars(function).update(facts)
        return function

    return mark
