"""What a user sees of one expression: it runs, or an error of ours says why not, before the round is compiled.

    judge("pf.run(P, pf.p_fedavg(rate=-1.0), 2)", SCOPE)     "refused"

No import hook checks types here: this is what a user's own process would say.
"""

import ast
import dataclasses
import functools
import inspect
import re
import traceback
import warnings
from pathlib import Path

from tracing import Traced

import performative

SOURCE = Path(performative.__file__).parent
# What a refusal may be, where a raise statement of ours made it: ConfigError and LogError are ValueErrors.
OURS = (ValueError, TypeError, KeyError, FileNotFoundError)
# Parts by name: a recipe holds some that its call does not show.
PUBLIC = {name for module in (performative.estimators, performative.aggregators) for name in module.__all__}
# Words of JAX, NumPy, equinox, beartype and Python that mean nothing to a user.
FOREIGN = re.compile(
    r"Traced<|[Tt]racer|ShapedArray|\bjit\b|vmap|XLA|xla|equinox[./]|beartype|jaxtyping|dot_general|pytree node"
    r"|broadcast|inhomogeneous|could not convert|invalid literal|truth value|has no attribute|not supported between"
    r"|object is not|unsupported operand|unhashable|too large to convert|cannot convert float|out of bounds"
    r"|ufunc|concatenat|reshape|incompatible shapes|concrete value"
)
# Warnings that are no words of ours.
RUMBLE = re.compile(
    r"encountered in|invalid value|divide by zero|overflow|Mean of empty|Degrees of freedom|Explicitly requested|"
    r"discards the imaginary|deprecated|donated buffers|lossy|scatter inputs"
)


@dataclasses.dataclass(frozen=True)
class Failure:
    """What went wrong, with a class that groups failures of one cause."""

    call: str
    kind: str
    error: str

    @property
    def cause(self) -> str:
        return f"{self.kind}: {re.sub(r'[0-9.]+', '#', self.error)[:100]}"


@functools.cache
def _raises(file: str) -> tuple[tuple[int, int], ...]:
    """First and last line of every raise statement of a file."""
    found = (node for node in ast.walk(ast.parse(Path(file).read_text())) if isinstance(node, ast.Raise))
    return tuple((node.lineno, node.end_lineno) for node in found)


def raised_by_us(error: BaseException) -> bool:
    """Whether the innermost frame stands at a raise statement of the package."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    if SOURCE not in Path(last.filename).parents:
        return False
    return any(first <= last.lineno <= end for first, end in _raises(last.filename))


def place(error: BaseException) -> str:
    """The innermost line of the package on the way to the error."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if SOURCE in Path(f.filename).parents]
    return f"{Path(ours[-1].filename).relative_to(SOURCE)}:{ours[-1].name}" if ours else "?"


@functools.cache
def _names(callable_: str) -> frozenset[str]:
    """The last word of a public name, and what it takes."""
    import performative as pf

    try:
        taken = list(inspect.signature(eval(callable_, {"pf": pf})).parameters)
        taken += inspect.signature(pf.Algorithm).parameters if "parts" in taken else []
        return frozenset({callable_.split(".")[-1], *taken})
    except (AttributeError, TypeError, ValueError):
        return frozenset()


def names_something(message: str, call: str, parameter: str | None) -> bool:
    """Whether the message says which argument it is about, or which part."""
    known = {parameter} if parameter else set(PUBLIC)
    for name in re.findall(r"pf(?:\.\w+)+(?=\()", call):
        known |= _names(name)
    return bool(known & set(re.findall(r"[A-Za-z_]\w*", message)))


def judge(call: str, scope: dict, parameter: str | None = None, then=None, late=()) -> str | Failure:
    """ "run" or "refused" where the answer is as promised, else what is wrong with it.

    `then` looks at the value; `late` is filled where compiled code has begun: from there on refusals come too late.
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            value = eval(call, scope)
            strange = None if then is None else then(value)
        except Traced:
            strange = None
        except OURS as error:
            return _refusal(call, parameter, error, late)
        except Exception as error:
            return Failure(call, f"{type(error).__name__} at {place(error)}", str(error)[:300])
    for warning in told:
        if RUMBLE.search(str(warning.message)):
            return Failure(call, warning.category.__name__, str(warning.message)[:300])
    return "run" if strange is None else Failure(call, "wrong without a word", strange)


def _refusal(call: str, parameter: str | None, error: Exception, late) -> str | Failure:
    said, where = str(error), place(error)
    # A value of the user's own, repeated after "got", or an error of a function of the user's own, may hold anything.
    ours = re.split(r"; got |it raised: |It raised: ", said)[0]
    if not raised_by_us(error):
        return Failure(call, f"foreign {type(error).__name__} at {where}", said[:300])
    if FOREIGN.search(ours):
        return Failure(call, f"foreign words at {where}", said[:300])
    if not names_something(said, call, parameter):
        return Failure(call, f"names nothing at {where}", said[:300])
    return Failure(call, f"refused after compilation at {where}", said[:300]) if late else "refused"
