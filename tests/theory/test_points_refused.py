"""Points and rates are refused where the iteration that they speak of runs away, or where there is none."""

import math

import numpy as np
import pytest

from performative.theory import (
    Assumptions,
    ClippedAssumptions,
    ClippedQuadratic,
    CyclicAssumptions,
    PerformativeAssumptions,
    best_local_steps,
    clip_pull,
    contaminated_variance,
    cycle_point,
    effective_steps,
    exact_jacobian_error,
    extrapolation,
    gaussian_local_steps,
    gaussian_moments,
    gaussian_points,
    gaussian_rate,
    lemma_5_6,
    lemma_5_7,
    lemma_5_8,
    objective_weights,
    participation_variance,
    quadratic_floor,
    settled_point,
    step_noise,
    steps_to_accuracy,
    theorem_3_1,
    theorem_5_10,
    travel,
)

# The README's "Clients that differ": the client that reacts most works most.
README = {"mean": [1.0, 2.0, 3.0, 4.0], "slope": [-0.6, 0.4, 0.4, 0.4], "weights": np.full(4, 0.25), "eta": 0.05}


def test_rounds_that_grow_are_refused_with_their_factor():
    with pytest.raises(ValueError, match=r"multiplies an error by 1\.0248.*\(-7\.20688\).*diverging-iteration"):
        settled_point(**README, local_steps=[5, 1, 1, 1])
    assert settled_point(**README, local_steps=[5, 1, 1, 1], attracting=False) == pytest.approx(-7.20688, abs=1e-5)
    assert settled_point(**README, local_steps=[5, 1, 1, 1], nova=True) == pytest.approx(2.5 / 0.15, rel=0.1)
    # Steps that overshoot: 1 - 2.5 = -1.5.
    with pytest.raises(ValueError, match=r"by -1\.5, .*oscillates.*diverging-iteration"):
        settled_point([1.0], [1.0], [1.0], 2.5, 1)
    with pytest.raises(ValueError, match=r"a cycle multiplies an error by 1\.\d+.*diverging-iteration"):
        cycle_point([1.0, 2.0], [-0.5, 0.2], [[0], [1]], 0.1)
    assert cycle_point([1.0, 2.0], [-0.5, 0.2], [[0], [1]], 0.1, attracting=False) < 0
    for slope in ([-0.5, 0.2], [-3.0, 1.0]):
        with pytest.raises(ValueError, match="diverging-iteration"):
            quadratic_floor([1.0, 2.0], slope, 0.1, 3)


def test_no_pull_at_all_has_no_point():
    for call in (
        lambda: settled_point([1.0, 2.0], [0.0, 0.0], [0.5, 0.5], 0.1, 1),
        lambda: cycle_point([1.0, 2.0], [0.0, 0.0], [[0], [1]], 0.1),
        lambda: quadratic_floor([1.0, 2.0], [0.5, -0.5], 0.1, 1),
    ):
        with pytest.raises(ValueError, match=r"no fixed point, or every point is one.*no-fixed-point"):
            call()


def test_a_slope_that_is_almost_zero_keeps_its_digits():
    # R -> eta tau as the slope goes to 0; (1 - (1 - u)^tau) / u lost them all below 1e-13 or so.
    for slope in (1e-15, 1e-10, 1e-5):
        point = settled_point([1.0, 1.0], [slope, 1.0], [0.5, 0.5], 0.1, [4, 4])
        R = sum(0.1 * (1 - 0.1 * slope) ** k for k in range(4)), sum(0.1 * 0.9**k for k in range(4))
        assert point == pytest.approx((R[0] + R[1]) / (R[0] * slope + R[1]), rel=1e-14)


def test_the_server_step_of_updates_that_cancel():
    assert extrapolation([0.0, 0.0], 0.0) == 1.0
    with pytest.raises(ValueError, match=r"cancel.*eps > 0.*unbounded-step"):
        extrapolation([1.0, 1.0], 0.0)
    assert extrapolation([1.0, 1.0], 0.0, eps=0.1) == pytest.approx(5.0)
    for squares, together in (([], 0.0), ([1.0, -1.0], 0.0), ([np.nan], 0.0)):
        with pytest.raises(ValueError, match="squares"):
            extrapolation(squares, together)


def test_points_on_the_edge_up_to_rounding():
    third = np.full(3, 1 / 3)
    assert gaussian_points([0.1, 0.2, -0.3], [0.9, 1.0, 1.1], third).verdict == "every theta is stable"
    assert gaussian_points([0.1, 0.2, 0.3], [0.9, 1.0, 1.1], third).verdict == "no stable point"
    assert "neither" in gaussian_points([0.1, 0.2, 0.3], [-0.9, -1.0, -1.1], third).verdict
    assert math.isnan(gaussian_points([1.0, 2.0], [1.0, 1.0 + 1e-15]).optimal)


def test_a_target_that_is_never_reached_has_no_best_work():
    with pytest.raises(ValueError, match=r"no E from 1 to 20 gets there.*never-reached"):
        best_local_steps(lambda E: math.inf, 1.0, limit=20)
    strong = Assumptions(1.0, 1.0, 1.0, 1.0, 1.5, 1.5, 1.0)
    with pytest.raises(ValueError, match="never-reached"):
        best_local_steps(lambda E: steps_to_accuracy(theorem_3_1(strong, E), 0.1), 1.0, limit=3)
    # Without sampling noise the least work is best, and that is one step, not none.
    assert gaussian_local_steps([0.0, 1.0], 0.5, 0.0, 5.0, scheme="one", k=1) == 1.0


def test_models_that_leave_a_direction_out_say_nothing_of_it():
    with pytest.raises(ValueError, match="models-do-not-span"):
        exact_jacobian_error([[1.0, 2.0], [2.0, 4.0]], 1.0, 10)
    with pytest.raises(ValueError, match="models-do-not-span"):
        exact_jacobian_error(np.zeros((1, 3)), 1.0, 10)


def test_a_lemma_without_room_is_infinite():
    weak = ClippedAssumptions(1.0, 1.0, 1.5, 2.0, 1.0)
    assert clip_pull(weak, 1.0, 0.1, 1.0) == math.inf
    assert np.all(np.isinf(clip_pull(weak, 1.0, 0.1, np.ones(3))))
    # rho eta below rounding: errors add up, they do not turn into NaN.
    tiny = PerformativeAssumptions(1.0, 0.1, 1e-20, 1.0, smoothness=1.0)
    np.testing.assert_allclose(theorem_5_10(tiny, 0.1, 3, error=1.0).error, 0.05 * np.arange(4))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: settled_point([], [], [], 0.1, 1), "one per client"),
        (lambda: settled_point([1.0], [np.nan], [1.0], 0.1, 1), "finite"),
        (lambda: settled_point([1.0, 2.0], [1.0, 1.0], [0.5, 0.6], 0.1, 1), "sum to one"),
        (lambda: settled_point([1.0], [1.0], [1.0], 0.0, 1), "eta must be a positive number"),
        (lambda: settled_point([1.0], [1.0], [1.0], 0.1, 0), "local_steps must be whole numbers"),
        (lambda: cycle_point([1.0], [1.0], [], 0.1), "groups must be a list"),
        (lambda: cycle_point([1.0, 2.0], [1.0, 1.0], [[0], [2]], 0.1), "groups must list clients 0..1"),
        (lambda: cycle_point([1.0, 2.0], [1.0, 1.0], [[0], []], 0.1), "groups must list clients 0..1"),
        (lambda: cycle_point([1.0, 2.0], [1.0, 1.0], [[0], [1]], 0.1, 1, [1.0, 0.0]), "each group with some weight"),
        (lambda: quadratic_floor([1.0], [1.0], 0.1, 1, participants=2), "participants must be"),
        (lambda: participation_variance(5, 0), "participants must be"),
        (lambda: participation_variance(5, 6), "participants must be"),
        (lambda: objective_weights([0.0, 0.0], [1, 2]), "at least one client must have positive weight"),
        (lambda: effective_steps([0.5, 0.5], [1, np.nan]), "local_steps must be a finite number"),
        (lambda: CyclicAssumptions(1.0, 1.0, 1.0, 1.0, 1.0, 4, 0, 1), "groups must be a whole number"),
        (lambda: CyclicAssumptions(1.0, 1.0, -1.0, 1.0, 1.0, 4, 2, 1), "gap must be finite"),
        (lambda: gaussian_rate(1.0, 0.5, 1.0, 5.0, batch=-1), "batch must be a whole number"),
        (lambda: gaussian_rate(1.0, 0.5, 1.0, 5.0, local_steps=0), "local_steps must be a whole number"),
        (lambda: gaussian_moments(1.0, 0.5, -1.0, [0.1]), "scale is a standard deviation"),
        (lambda: gaussian_moments(1.0, np.nan, 1.0, [0.1]), "sensitivity must be a finite number"),
        (lambda: gaussian_moments(1.0, 0.5, 1.0, [-0.1]), "eta must contain finite"),
        (lambda: step_noise(np.ones((1, 1, 1)), np.ones((1, 1)), batch=0), "batch must be a whole number"),
        (lambda: contaminated_variance(1.0, 1.5, 1.0, 0.0), r"contamination must lie in \[0, 1\]"),
        (lambda: ClippedQuadratic(0.1, 1.0, 1.0, 0.1).dice_limit(1.0, -1.0), "memory_clip must be finite"),
        (lambda: travel([0.1], -1.0), "clip must be a positive number"),
        (lambda: lemma_5_6((0.0, 1.0), (0.0, 1.0), slope=lambda t: np.full(len(t), np.nan)), "NaN somewhere"),
    ],
)
def test_bad_numbers(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_a_confidence_is_a_probability():
    given = PerformativeAssumptions(1.0, 0.1, 1.0, 1.0, F=1.0, M=0.0)
    for confidence in (0.0, 1.0, 3.0):
        with pytest.raises(ValueError, match=r"confidence is the failure probability phi"):
            lemma_5_8(given, samples=10, variance=1.0, confidence=confidence)
        with pytest.raises(ValueError, match="confidence"):
            lemma_5_7(given, eta=0.1, window=2, reach=1.0, samples=10, variance=1.0, confidence=confidence)
