"""Every part that the package exports, in a private algorithm: it is promised something finite, or told why not.

No promise is inherited: a class derived from any of them that says nothing for itself voids it, and is named.
"""

import dataclasses
import math

import pytest
from part_examples import first_examples, scope

import performative as pf
from performative.privacy import guarantee

NAMES = scope(clients=7, rows=6, features=3, cohort=3)
DELTA = 1e-3
ROWS = pf.pcsgd(0.1, clip=1.0, noise_multiplier=4.0)
CLIENTS = pf.p_fedavg(0.1, channel=pf.channels.ClippedNoise(1.0, 4.0))
TABLE = pf.Problem(pf.losses.logistic(0.1), pf.populations.Strategic(NAMES["X"], NAMES["Y"], 0.1))
IN_ALGORITHM = first_examples("estimator", "batch", "participation", "channel", "aggregator")
# A loss, a domain or a rate is no source of noise; what else there is of an algorithm's slots is asked.
PEOPLE = first_examples("population")


def silent(part):
    """The same part as an instance of a class that declares nothing."""
    kind = type(
        "Changed", (type(part),), {"__module__": __name__, "__init__": lambda self: None, "__check_init__": None}
    )
    made = object.__new__(kind)
    for field in dataclasses.fields(part):
        object.__setattr__(made, field.name, getattr(part, field.name))
    return made


def told(example, part, algorithm):
    """What is promised with this part in its slot."""
    beside = {slot: eval(text, NAMES) for slot, text in example.beside.items()}
    if example.slot != "population":
        return guarantee(TABLE, dataclasses.replace(algorithm, **beside, **{example.slot: part}))
    return guarantee(pf.Problem(eval(example.loss or "pf.losses.squared", NAMES), part), algorithm)


@pytest.mark.parametrize("algorithm", [ROWS, CLIENTS], ids=["people", "clients"])
@pytest.mark.parametrize("example", [*IN_ALGORITHM, *PEOPLE], ids=lambda example: example.name)
def test_a_promise_or_a_reason(example, algorithm):
    promise = told(example, example.made(NAMES), algorithm)
    assert promise.on_word == ()  # our own parts need nobody else's word
    assert promise.certified == (not promise.why)
    if promise.certified:
        assert 0 < promise.spent(1, DELTA).epsilon < math.inf
    else:
        assert promise.spent(1, DELTA).epsilon == math.inf


@pytest.mark.parametrize("example", IN_ALGORITHM, ids=lambda example: example.name)
def test_a_silent_class_in_its_place_is_promised_nothing(example):
    part = example.made(NAMES)
    if told(example, part, ROWS).certified:
        promise = told(example, silent(part), ROWS)
        assert not promise.promised and "Changed" in promise.why[0]


def test_some_of_each_slot_can_be_private():
    """Else nothing above was tested."""
    private = {one.slot for one in (*IN_ALGORITHM, *PEOPLE) if told(one, one.made(NAMES), ROWS).certified}
    assert private == {"estimator", "batch", "participation", "channel", "aggregator", "population"}
