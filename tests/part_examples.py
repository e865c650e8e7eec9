"""A working example of every part that the package exports: what contract, parity, privacy and fuzz tests are run on.

A part without arguments needs nothing, nor does one whose arguments are all in `WORDS`. Any other declares an example,
as text, in the file that tests it, anywhere below `tests/`:

    PART_EXAMPLES = {
        "pf.participation.Cyclic": "groups=[i % 2 for i in range(N)]",
        "pf.populations.Pricing": {"arguments": "demand=X[:, 0], ...", "loss": "pf.losses.negative_revenue"},
    }

A tuple holds several: the first fits everywhere, the others only `performative.testing.check_part`; () says that only
functions of ours make such a part. In a dictionary

    arguments          of the constructor, by name
    loss, population   of the problem that it needs, where the usual one will not do
    theta              the model to start at, where any would fit
    beside             {slot: part} that it works with only
    inside             "pf.LocalWork(pf.Full(), {})": what holds it, where no base class says so

The declarations are read, not imported: `tests/fuzz/driver.py` runs without pytest. They may use the names of `scope`.
"""

import ast
import dataclasses
import functools
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from public_parts import public_parts, slot_of

import performative as pf

# What an argument of this name means, whatever part it belongs to; `inner` goes by slot.
WORDS = {"k": "K", "n": "2", "clip": "1.0", "noise_multiplier": "0.5", "tx": "pf.optimizers.Momentum(0.5)"}
INNER = {
    "estimator": "pf.estimators.Minibatch()", "aggregator": "pf.aggregators.Mean()", "population": "G",
    "participation": "pf.SchemeTwo(K)",
}  # fmt: skip
# What parts that are no slot of an algorithm or a problem are put into.
HOLDERS = {
    "optimizer": (
        "pf.estimators.Preconditioned(pf.estimators.Minibatch(), {})",
        "pf.aggregators.ServerOpt(pf.aggregators.Mean(), {})",
    ),
    "family": ("pf.estimators.Performative(7, {})",),
    "latency": ("pf.FirstK(K, {})",),
    "staying": ("pf.participation.Retention(pf.Full(), {}, join=0.2)",),
    "availability": ("pf.Available({})",),
    "share": ("pf.populations.Mixture((G, G), {})",),
    "shift": ("pf.populations.Database(X[..., 0], {})",),
    "path": ("pf.populations.Drifting(G, {})",),
}


@dataclasses.dataclass(frozen=True)
class Example:
    """One example of a part, in text. `name` is the class's public one, `slot` None where something else holds it."""

    name: str
    slot: str | None
    arguments: str
    loss: str | None = None
    population: str | None = None
    theta: str | None = None
    beside: Mapping[str, str] = dataclasses.field(default_factory=dict)
    inside: str | None = None

    @property
    def call(self) -> str:
        return f"{self.name}({self.arguments})"

    @property
    def holders(self) -> tuple[str, ...]:
        """Text around the part until it fills a slot: "{}" where it does so itself."""
        return (self.inside,) if self.inside else HOLDERS.get(self.slot or "", ("{}",))

    @property
    def word(self) -> str:
        return self.name.split(".")[-1]

    def made(self, names: dict[str, Any]) -> Any:
        return eval(self.call, names)


def scope(clients: int, rows: int, features: int, cohort: int) -> dict[str, Any]:
    """The names in examples: N clients, of whom K take part; X, Y their tables; G people on a line."""
    rng = np.random.default_rng(0)
    return {
        "pf": pf, "np": np, "N": clients, "K": cohort, "X": rng.standard_normal((clients, rows, features)),
        "Y": np.tile(np.arange(rows) % 2, (clients, 1)),
        "G": pf.populations.Gaussian(np.arange(float(clients)), 0.5, 1.0),
    }  # fmt: skip


@functools.cache
def declarations() -> dict[str, Any]:
    """What the tests declare in PART_EXAMPLES."""
    found: dict[str, Any] = {}
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "\nPART_EXAMPLES = " not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PART_EXAMPLES":
                new = ast.literal_eval(node.value)
                assert not new.keys() & found.keys(), f"{path}: {new.keys() & found.keys()} is declared twice"
                found |= new
    return found


def guess(kind: type, slot: str | None) -> str | None:
    """Arguments whose names say what they are, None where some do not."""
    needed = [
        p.name for p in inspect.signature(kind).parameters.values()
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD
    ]  # fmt: skip
    words = WORDS | {"inner": INNER[slot]} if slot in INNER else WORDS
    return ", ".join(f"{word}={words[word]}" for word in needed) if set(needed) <= set(words) else None


def examples_of(name: str, kind: type) -> list[Example] | None:
    """Declared or guessed; None where the part takes what nobody can guess."""
    slot = slot_of(kind)
    under = [told for told in declarations() if told.split(".")[-1] == kind.__name__ and eval(told, {"pf": pf}) is kind]
    told = declarations()[under[0]] if under else guess(kind, slot)
    several = told if isinstance(told, tuple) else (told,)
    if None in several:
        return None
    made = [Example(name, slot, **({"arguments": one} if isinstance(one, str) else one)) for one in several]
    return made if all(one.slot or one.inside for one in made) else None


def examples(parts: dict[str, type] | None = None) -> list[Example]:
    """Of all parts that have one, several examples of a part one after another."""
    parts = public_parts() if parts is None else parts
    return [example for name, kind in parts.items() for example in examples_of(name, kind) or ()]


def without_example(parts: dict[str, type] | None = None) -> list[str]:
    """What to do about each part that has none."""
    parts = public_parts() if parts is None else parts
    return [
        f'{kind.__module__}.{kind.__name__} has no example: add PART_EXAMPLES = {{"{name}": "argument=value"}} to the '
        "file in tests/ that tests it"
        + ("." if slot_of(kind) else ', with "inside": what holds it, since it has the base class of no slot.')
        for name, kind in parts.items()
        if examples_of(name, kind) is None
    ]


def first_examples(*slots: str) -> list[Example]:
    """One of each part, of these slots only where any are named."""
    firsts = {example.name: example for example in reversed(examples())}
    return [example for example in reversed(firsts.values()) if not slots or example.slot in slots]
