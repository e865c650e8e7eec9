"""People who leave where they are served badly: shares follow losses, and the start decides who is left."""

import numpy as np
import pytest

import performative as pf
from performative.participation import Patience, Retention

PART_EXAMPLES = {
    "pf.participation.Patience": "tolerance=1.0, steepness=2.0, most=0.95",
    "pf.participation.Retention": (
        "inner=pf.SchemeTwo(K), stay=pf.participation.Patience(1.0, 2.0), join=0.1",
        "inner=pf.Full(), stay=pf.participation.Patience(np.linspace(0.5, 1.0, N)), start=np.linspace(1.0, 2.0, N), "
        "pay=0.2, since=np.arange(1.0 * N), quits=0.1",
    ),
}
STAY = Patience(tolerance=1.0, steepness=4.0, most=0.98)
JOIN, MEAN, EPS = 0.05, np.array([-1.0, 1.0]), np.array([0.3, 0.0])


def nu(loss, stay=STAY):
    return float(stay.most) / (1 + np.exp(float(stay.steepness) * (loss - float(stay.tolerance))))


def problem(scale=0.0, weights=None, eps=EPS, mean=MEAN):
    return pf.Problem(pf.losses.squared, pf.populations.Gaussian(mean, eps, scale), weights)


def run(retention, rounds, theta=0.0, rate=1.0, **options):
    record = pf.Record(risks=False, clients=("left", "weight"))
    options = {"dtype": "float64", "record": record} | options
    return pf.run(
        options.pop("problem", problem()), pf.p_fedavg(rate, participation=retention), rounds, theta=theta, **options
    )


def groups(**changes):
    return pf.theory.TwoGroups(**{"mean": MEAN, "scale": 0.0, "stay": STAY, "join": JOIN, "sensitivity": EPS} | changes)


def test_a_run_is_the_recursion_by_hand():
    p, pay, left, theta = np.array([0.7, 0.3]), np.array([0.0, 0.4]), np.array([1.0, 0.6]), 0.2
    history = run(Retention(pf.Full(), STAY, JOIN, left, pay), 12, theta, problem=problem(weights=p))
    for r in range(12):
        a = p * left / (p @ left)
        losses = (theta - MEAN - EPS * theta) ** 2 / 2
        left, theta = nu(losses - pay) * left + JOIN, a @ (MEAN + EPS * theta)
        np.testing.assert_allclose(history.theta[0, r + 1], theta, rtol=1e-10)
        np.testing.assert_allclose(history.clients["left"][0, r + 1], left, rtol=1e-10)
        np.testing.assert_allclose(history.clients["weight"][0, r + 1], a, rtol=1e-10)


def test_two_groups_have_two_ends_and_a_watershed_between_them():
    exact = groups()
    first, middle, last = exact.points()
    assert first.attracting and last.attracting and not middle.attracting
    for point in (first, middle, last):  # a round leaves them as they are
        left, theta = exact.step(point.left, point.theta)
        np.testing.assert_allclose([*left, theta], [*point.left, point.theta], rtol=1e-9)
        np.testing.assert_allclose(point.left * (1 - nu(point.losses)), JOIN, rtol=1e-9)
    # Just beside the watershed both ends are reached: along the way that it repels in.
    for side, end in ((1.05, 2), (0.95, 0)):
        start = middle.left * [side, 1 / side]
        assert exact.ends(start, middle.theta) == end
        history = run(Retention(pf.Full(), STAY, JOIN, start), 500, middle.theta)
        np.testing.assert_allclose(history.final[0], exact.points()[end].theta, atol=1e-6)
        np.testing.assert_allclose(history.clients["left"][0, -1], exact.points()[end].left, atol=1e-6)


def test_equal_groups_are_told_apart_by_the_start_alone():
    exact = groups(sensitivity=0.0)
    grid = np.stack(np.meshgrid(np.linspace(0.1, 1.5, 6), np.linspace(0.1, 1.5, 6), indexing="ij"), -1)
    ends = exact.ends(grid)
    larger = np.sign(grid[..., 0] - grid[..., 1]).astype(int) + 1  # by symmetry the diagonal is the watershed
    np.testing.assert_array_equal(ends, larger)


def test_one_factor_near_the_end_is_what_a_run_shows():
    point = groups().points()[2]
    history = run(Retention(pf.Full(), STAY, JOIN, point.left * 1.001), 60, point.theta)
    gaps = np.abs(history.clients["left"][0, 1:, 0] - point.left[0])
    np.testing.assert_allclose(gaps[-1] / gaps[-2], point.contraction, rtol=1e-3)


@pytest.mark.slow
def test_pay_keeps_a_group_that_would_go():
    start, model = np.array([1.0, 0.7]), 0.0
    unpaid, paid = (groups(sensitivity=0.0, pay=pay).ends(start, model) for pay in (0.0, [0.0, 1.5]))
    assert unpaid == 2
    assert groups(sensitivity=0.0, pay=[0.0, 1.5]).points()[int(paid)].left[1] > 0.9
    history = run(Retention(pf.Full(), STAY, JOIN, start, [0.0, 1.5]), 400, model, problem=problem(eps=0.0))
    assert history.clients["left"][0, -1, 1] > 0.9


def test_who_joins_later_has_no_weight_before_and_its_start_then():
    history = run(Retention(pf.Full(), STAY, JOIN, 1.0, since=[0.0, 3.0]), 5, 0.0, rate=0.1)
    weight = history.clients["weight"][0]
    assert np.all(np.isnan(weight[1:4, 1])) and np.all(weight[1:4, 0] == 1)
    left = history.clients["left"][0, 3]
    np.testing.assert_allclose(weight[4], [left[0] / (left[0] + 1), 1 / (left[0] + 1)], rtol=1e-10)


def test_a_client_with_too_few_people_goes_for_good_and_where_all_have_gone_the_model_stays():
    history = run(Retention(pf.Full(), Patience(0.1, 9.0), 0.0, 1.0, quits=[0.5, 0.5]), 6, 0.0, rate=0.1)
    left = history.clients["left"][0]
    assert np.all(left[-1] < 0.5) and np.all(left[-1] == left[-2])
    assert history.theta[0, -1] == history.theta[0, -2] == history.theta[0, -3]


@pytest.mark.slow
def test_with_sampled_clients_weights_are_unbiased_for_those_who_are_left():
    p, left = np.array([0.4, 0.3, 0.2, 0.1]), np.array([1.0, 0.5, 0.1, 2.0])
    people = pf.populations.Gaussian(np.arange(4.0), 0.0, 1.0)
    for inner in (pf.SchemeOne(2), pf.SchemeTwo(2)):
        history = run(
            Retention(inner, Patience(1e6, 1.0), 0.0, left), 1, problem=pf.Problem(pf.losses.squared, people, p),
            repeats=1500, dtype=None,
        )  # fmt: skip
        weight = np.nan_to_num(history.clients["weight"][:, 1])
        error = 4.5 * weight.std(axis=0) / np.sqrt(len(weight))
        assert np.all(np.abs(weight.mean(axis=0) - p * left / (p @ left)) < error)


@pytest.mark.slow
def test_people_of_clients_that_sit_out_have_seen_nothing_new():
    people = pf.populations.Gaussian(np.arange(4.0), 0.0, 1.0)
    history = run(
        Retention(pf.SchemeTwo(2), Patience(0.5, 4.0), 0.1), 6, problem=pf.Problem(pf.losses.squared, people), rate=0.1
    )
    left, absent = history.clients["left"][0], np.isnan(history.clients["weight"][0])
    before, after = left[1:-1], left[2:]
    np.testing.assert_array_equal(before[absent[2:]], after[absent[2:]])
    assert np.all(before[~absent[2:]] != after[~absent[2:]])


@pytest.mark.slow
def test_combinations_and_what_is_not_promised():
    stays = Retention(pf.SchemeTwo(1), STAY, JOIN)
    assert run(pf.LocalWork(stays, [2, 1]), 2, rate=0.1).clients["left"].shape == (1, 3, 2)
    with pytest.raises(ValueError, match=r"no quantity 'lost' is recorded per client; choose from .*left"):
        run(stays, 1, record=pf.Record(clients=("lost",)))
    private = pf.pcsgd(0.1, clip=1.0, noise_multiplier=1.0, participation=stays)
    assert not pf.privacy.guarantee(problem(1.0), private).certified


@pytest.mark.parametrize(
    ("message", "make"),
    [
        ("put it outside: pf.LocalWork", lambda: Retention(pf.LocalWork(pf.Full(), [1, 2]), STAY)),
        ("inner is FirstK, whose weights", lambda: Retention(pf.FirstK(1, pf.participation.Exponential(1.0)), STAY)),
        ("join must not be negative", lambda: Retention(pf.Full(), STAY, -0.1)),
        (r"most must lie in \[0, 1\]", lambda: Patience(1.0, 1.0, 2.0)),
        (r"since has shape \(3,\) for 2 clients", lambda: run(Retention(pf.Full(), STAY, since=[0, 1, 2]), 1)),
        (r"Patience: tolerance has shape \(3,\)", lambda: run(Retention(pf.Full(), Patience([1.0, 2.0, 3.0])), 1)),
        ("needs two groups; mean has 3", lambda: groups(mean=[1.0, 2.0, 3.0], sensitivity=0.0)),
        ("join must be above 0", lambda: groups(join=0.0)),
        ("sensitivity must be below 1", lambda: groups(sensitivity=1.0)),
        (r"a probability in \[0, 1\]", lambda: groups(stay=lambda loss: 2 + loss)),
        ("left must contain what remains of both", lambda: groups().ends([0.0, 0.0])),
    ],
)
def test_what_makes_no_sense_is_refused(message, make):
    with pytest.raises(ValueError, match=message):
        make()
