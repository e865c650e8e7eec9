"""Parts are found in the package, each with an example; what is missing is said with what to do about it."""

import inspect
import typing

import pytest
from part_examples import declarations, examples, examples_of, first_examples, guess, scope, without_example
from public_parts import BASES, public_parts, slot_of

import performative as pf
from performative.facts import AbstractPart


class Newcomer(pf.batches.AbstractBatch):
    """A batch that nobody has declared anything about."""

    n: int = pf.whole()

    def expected(self, population):
        return float(self.n)

    def draw(self, key, standing_key, population, theta, steps, memory):
        return pf.Fixed(self.n).draw(key, standing_key, population, theta, steps, memory)


class Riddle(Newcomer):
    """The same, with an argument that means nothing to anybody."""

    riddle: int = pf.whole()


class Homeless(AbstractPart):
    """A part of no slot."""


@pytest.fixture
def export(monkeypatch):
    """Puts a class into a public module, as its author would."""

    def put(kind, module=pf.batches):
        monkeypatch.setattr(module, kind.__name__, kind, raising=False)
        monkeypatch.setattr(module, "__all__", [*module.__all__, kind.__name__])

    return put


def test_every_part_has_an_example():
    missing = without_example()
    assert not missing, "\n".join(missing)


def test_every_slot_is_found():
    found = public_parts()
    assert {slot_of(kind) for kind in found.values()} >= {*BASES, "deploy"}
    assert {"pf.Fixed", "pf.aggregators.Krum", "pf.populations.shares.Linear", "pf.Every", "pf.Box"} <= found.keys()
    assert not [name for name, kind in found.items() if inspect.isabstract(kind)]


def test_all_that_is_declared_is_exported():
    known = set(public_parts().values())
    strange = [name for name in declarations() if eval(name, {"pf": pf}) not in known]
    assert not strange, f"PART_EXAMPLES names {strange}, which are no exported parts"


@pytest.mark.parametrize("sizes", [(3, 8, 2, 2), (7, 6, 3, 3), (7, 6, 1, 5)], ids=["fuzz", "contract", "parity"])
def test_first_examples_can_be_made_at_every_size(sizes):
    names = scope(*sizes)
    for example in first_examples():
        for holder in example.holders:
            assert eval(holder.format(example.call), names) is not None
        assert type(example.made(names)) is public_parts()[example.name]


def test_what_is_exported_is_found_with_nothing_else_said(export):
    before = len(examples())
    export(Newcomer)
    assert public_parts()["pf.batches.Newcomer"] is Newcomer and not without_example()
    assert len(examples()) == before + 1
    (found,) = [example for example in first_examples("batch") if example.word == "Newcomer"]
    assert found.call == "pf.batches.Newcomer(n=2)" and found.made(scope(7, 6, 3, 3)).n == 2


def test_what_is_not_exported_is_not_found():
    assert Newcomer not in public_parts().values()


def test_a_part_without_an_example_is_named_with_what_to_add(export):
    export(Riddle)
    assert guess(Riddle, "batch") is None and examples_of("pf.batches.Riddle", Riddle) is None
    (said,) = without_example()
    assert "Riddle has no example" in said and '{"pf.batches.Riddle": "argument=value"}' in said
    assert all(example.word != "Riddle" for example in examples())


def test_a_part_of_no_slot_says_what_holds_it(export):
    export(Homeless)
    (said,) = without_example()
    assert "Homeless has no example" in said and '"inside": what holds it' in said


@pytest.mark.parametrize("slot", ["population", "batch", "estimator", "participation", "channel", "aggregator"])
def test_parts_say_what_they_remember(slot):
    """`AbstractChannel[None]`, not `AbstractChannel`: a checker then knows what `init` gives and `memory` is."""
    for name, part in public_parts().items():
        if slot_of(part) == slot:
            bases = [base for kind in part.__mro__ for base in vars(kind).get("__orig_bases__", ())]
            assert any(inspect.isclass(o := typing.get_origin(b)) and issubclass(o, BASES[slot]) for b in bases), name
