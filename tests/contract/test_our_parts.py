"""Every part that the package exports keeps the contract of its slot, in all its examples (see `part_examples`)."""

import pytest
from part_examples import examples, scope

import performative as pf
from performative.testing import check_part

# The shapes of check_part's own small problem, so that what JAX compiles step by step is shared.
NAMES = scope(clients=7, rows=6, features=3, cohort=3)
# Losses and rules of deployment have no contract of their own: they meet the others in tests/parity.
CASES = {}
for example in examples():
    if example.slot not in ("loss", "deploy"):
        number = sum(key.startswith(f"{example.name} ") for key in CASES) + 1
        CASES[f"{example.name} {number}"] = example

# One a slot in `make test`, the others in the slow set.
QUICK = {
    "pf.SchemeOne 1", "pf.Fixed 1", "pf.populations.Gaussian 2", "pf.estimators.Minibatch 1", "pf.channels.Plain 1",
    "pf.aggregators.Mean 1", "pf.sharing.Ditto 1", "pf.schedules.Harmonic 1", "pf.Box 2",
}  # fmt: skip

COMMON = {"types_stay", "jit_equals_eager", "vmap_equals_loop", "compiles_once"}
OF_SLOT = {
    "participation": {"cohort", "relabeling", "in_a_round"},
    "batch": {"padding", "in_a_round"},
    "population": {"in_a_round"},
    "estimator": {"padding", "in_a_round"},
    "channel": {"in_a_round"},
    "aggregator": {"padding", "relabeling", "in_a_round"},
    "sharing": {"in_a_round"},
    "rate": {"step_size"},
    "domain": {"projection", "in_a_round"},
}
# What must not be passed over for these, beside the rules of their slot. A part that is not here may keep any.
ALSO = {
    "sweeps": "FirstK Poisson Gaussian Contaminated Strategic Sluggish Pricing Market Regression Mixture Classes "
    "Outliers Database Reweighted Clipped Dice ClippedModel ClippedNoise Constant Harmonic Table Box Ball Performative "
    "Filtered Drifting AdaptiveSize PooledJacobian Prox Preconditioned ServerOpt TrimmedMean Sparse RandomK "
    "Quantized Available Pools Weighted",
    "saves": "Shuffled Sluggish Reweighted Dice AdaptiveSize PooledJacobian Varp Preconditioned ControlVariate "
    "Drifting Scaffold Nova ServerOpt ClusterVarp Sparse Quantized AdaComm Pools",
    "nodes": "Gaussian Contaminated Strategic Sluggish Drifting Pricing Market Regression Mixture Classes Outliers "
    "Database Reweighted Pools",
    "expectations": "Gaussian Contaminated Strategic Sluggish Drifting Pricing Market Regression Mixture Classes "
    "Outliers Database Pools",
    "settling": "Pools Sluggish Drifting Reweighted Market",
    "sitting_out": "Varp Nova",
    "sums": "Mean Nova ServerOpt",
}
# Step by step these take long: so many steps.
MANY_STEPS = ("Performative", "AdaptiveSize", "PooledJacobian")


def read(text):
    return None if text is None else eval(text, NAMES)


def check(example):
    """`check_part`, with the company that the example asks for, of the part or of what holds it."""
    part = eval(example.holders[0].format(example.call), NAMES)
    problem, algorithm = None, None
    if example.loss or example.population:
        problem = pf.Problem(read(example.loss) or pf.losses.squared, read(example.population) or NAMES["G"])
    if example.beside:
        beside = {"participation": pf.SchemeTwo(3)} | {slot: read(text) for slot, text in example.beside.items()}
        algorithm = pf.Algorithm(rate=0.1, batch=pf.Fixed(4), **beside)
    skip = ["jit_equals_eager"] if any(name in example.holders[0] + example.call for name in MANY_STEPS) else []
    return set(check_part(part, problem, theta=read(example.theta), algorithm=algorithm, skip=skip)), set(skip)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES])
def test_a_part_keeps_its_contract(name):
    example = CASES[name]
    rules, skipped = check(example)
    known = {rule for rule, names in ALSO.items() if example.word in names.split()}
    assert rules >= (COMMON | OF_SLOT.get(example.slot, set()) | known) - skipped


def test_one_of_each_slot_is_quick():
    assert set(CASES) >= QUICK
    assert {CASES[name].slot for name in QUICK} == set(OF_SLOT)


@pytest.mark.slow
def test_pooled():
    part = pf.Problem(pf.losses.squared, pf.populations.Sluggish(NAMES["G"], 0.5)).pooled().population
    assert set(check_part(part)) >= COMMON | {"sweeps", "nodes", "expectations", "in_a_round", "saves", "settling"}


def test_company_can_be_given():
    one = pf.Algorithm(rate=0.1, participation=pf.SchemeOne(3))
    assert "relabeling" in check_part(pf.aggregators.Mean(of="models"), algorithm=one, skip=["in_a_round"])
