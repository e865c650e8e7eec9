"""What a user meets: names, signatures and representations that say what there is."""

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import performative as pf
from performative import recipes
from performative.algorithm import Parts

PROBLEM = pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, 2.0], 0.5, 1.0))


def test_dir_lists_what_is_public_and_nothing_else():
    names = [name for name in dir(pf) if not name.startswith("_")]
    assert {"audit", "live", "report", "plotting", "data"} <= set(names)
    assert not {"lazy", "describe", "frames", "bars"} & set(names)
    for name in names:
        assert getattr(pf, name) is not None


def test_recipes_take_every_slot_of_an_algorithm_by_name():
    fields = [field.name for field in dataclasses.fields(pf.Algorithm) if field.name != "rate"]
    assert list(Parts.__annotations__) == fields
    for name in recipes.__all__:
        parameters = inspect.signature(getattr(pf, name)).parameters
        assert list(parameters)[-len(fields) :] == fields, name
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    with pytest.raises(ValueError, match=r"has no argument 'lokal_steps'\. Did you mean 'local_steps'"):
        pf.p_fedavg(0.1, lokal_steps=3)


def test_representations_show_values():
    assert repr(pf.p_fedavg(0.1).rate) == "Constant(value=0.1)"
    assert "Gaussian(mean=[1.0, 2.0], sensitivity=0.5, scale=1.0)" in repr(
        pf.Problem(pf.losses.squared, pf.populations.Gaussian([1.0, 2.0], 0.5, 1.0))
    )
    assert "mean=f64[100](numpy)" in repr(pf.populations.Gaussian(np.zeros(100), 0.5, 1.0))


def test_names_are_loaded_late_and_all_of_them_can_be():
    """What type checkers see, what is public and where it lies are one list; importing the package loads nothing."""
    source = Path(pf.__file__).read_text()
    block = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body for alias in node.names}
    assert {name for name, module in typed.items() if module != "performative"} == set(pf._PLACES)
    assert all(f"performative.{pf._PLACES[name]}" == module for name, module in typed.items() if name in pf._PLACES)
    assert set(typed) == set(pf.__all__)
    code = (
        "import sys, performative as pf; assert not {'jax', 'numpy', 'scipy'} & set(sys.modules); "
        "import performative.plan.near; assert callable(pf.plan) and callable(pf.watch); "
        "import performative.privacy; assert pf.privacy.attack.__name__.endswith('attack')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("slip", "kind", "told"),
    [
        (lambda: pf.pfedavg, AttributeError, "did you mean 'p_fedavg'"),
        (lambda: pf.run(None, None, round=3), TypeError, "has no argument 'round'. Did you mean 'rounds'"),
        (lambda: pf.run(PROBLEM, pf.p_fedavg(0.1), rounds=3, repeat=4), TypeError, "'repeat'. Did you mean 'repeats'"),
        (lambda: pf.sweep(None, None, overs={}, rounds=3), TypeError, "has no argument 'overs'. Did you mean 'over'"),
        (lambda: pf.SchemeOne(-1), ValueError, "k >= 1"),
    ],
)
def test_slips_are_answered_with_the_nearest_name(slip, kind, told):
    with pytest.raises(kind, match=re.escape(told)):
        slip()
