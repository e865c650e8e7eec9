"""The worst law near the data, and optima of a fitted reaction, against closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import performative as pf
from performative.estimators.robust import worst_weights

PART_EXAMPLES = {
    "pf.estimators.Robust": ("radius=0.1", "radius=0.1, divergence='chi2'"),
    "pf.estimators.PlugIn": {
        "arguments": "deployments=4",
        "beside": {"deploy": "pf.Explore(0.5, pairs=False, directions='axes')"},
    },
}
RECORD = pf.Record(risks=False, consensus=False, theta="last")


def worst(losses, radius, divergence, real=None):
    real = np.ones(len(losses), bool) if real is None else real
    return np.asarray(worst_weights(jnp.asarray(losses), jnp.asarray(real), jnp.asarray(radius), divergence))


@pytest.mark.usefixtures("double_precision")
def test_a_kl_ball_adds_its_deviations_to_the_mean_of_a_normal_law():
    # Loss theta z, z ~ N(mu, s^2): theta mu + |theta| s sqrt(2 radius). Nodes are the middles of equal shares.
    z = 3.0 + 2.0 * stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    for theta, radius in ((1.5, 0.02), (-0.7, 0.1)):
        value = worst(theta * z, radius, "kl") @ (theta * z)
        assert value == pytest.approx(theta * 3.0 + abs(theta) * 2.0 * np.sqrt(2 * radius), rel=2e-3)


@pytest.mark.usefixtures("double_precision")
def test_of_two_losses_the_worst_weights_lie_on_the_ball():
    def beyond(q, radius):
        return q * np.log(2 * q) + (1 - q) * np.log(2 * (1 - q)) - radius

    for radius in (0.05, 0.4):
        q = optimize.brentq(beyond, 0.5, 1 - 1e-12, args=(radius,))
        np.testing.assert_allclose(worst([1.0, 7.0], radius, "kl"), [1 - q, q], atol=1e-7)
    np.testing.assert_allclose(worst([1.0, 7.0], 1.0, "kl"), [0, 1], atol=1e-6)  # beyond log 2


@pytest.mark.usefixtures("double_precision")
def test_a_small_chi2_ball_adds_standard_deviations_of_the_batch():
    losses = np.random.default_rng(0).normal(size=50)
    away = (losses - losses.mean()) / losses.std()
    np.testing.assert_allclose(worst(losses, 0.02, "chi2"), (1 + np.sqrt(0.04) * away) / 50, atol=1e-8)
    large = worst(losses, 2.0, "chi2")  # some losses no longer count
    assert large.min() == 0 and large.sum() == pytest.approx(1.0)
    assert np.sum((50 * large - 1) ** 2) / 100 == pytest.approx(2.0, rel=1e-6)


@pytest.mark.slow
def test_rows_that_do_not_count_have_no_weight():
    for divergence in ("kl", "chi2"):
        losses, real = np.asarray([1.0, np.nan, 2.0, 99.0], np.float32), np.asarray([True, False, True, False])
        found = worst(losses, np.float32(0.1), divergence, real)
        assert found[1] == 0 and found[3] == 0 and found[2] > found[0] > 0 and found.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(worst(losses, np.float32(0.0), divergence, real), [0.5, 0, 0.5, 0])
        np.testing.assert_allclose(worst(np.ones(3, np.float32), np.float32(1.0), divergence), np.full(3, 1 / 3))


@pytest.mark.slow
def test_a_robust_price_expects_less_demand():
    # Demand N(d - s theta, sigma^2), loss -theta z: the stable price is (d - sigma sqrt(2 radius)) / s.
    prices = pf.Problem(pf.losses.negative_revenue, pf.populations.Pricing([6.0], [2.0], 1.0))
    found = pf.run(prices, pf.robust(0.2, radius=0.125, batch=pf.Fixed(400)), 80, theta=1.0, record=RECORD).final
    assert float(np.mean(found)) == pytest.approx((6.0 - 0.5) / 2.0, abs=0.05)


SLOPES = np.asarray([[[0.5, 0.2], [-0.1, 0.3]], [[-0.4, 0.0], [0.3, 0.6]]])
PEOPLE = pf.populations.Gaussian([[1.0, -2.0], [0.0, 3.0]], SLOPES, 0.0)
PLANE = pf.Problem(pf.losses.squared, PEOPLE)


def first_only(theta):
    return theta[:1]


@pytest.mark.slow
def test_three_deployments_tell_a_linear_reaction_in_the_plane():
    found = pf.run(PLANE, pf.plug_in(0.5, 1.0, 3), 120, theta=np.ones(2), record=RECORD, dtype="float64").final[0]
    np.testing.assert_allclose(found, np.asarray(pf.optimal_point(PLANE)), atol=1e-9)
    assert np.abs(found - np.asarray(pf.stable_point(PLANE))).max() > 0.1


@pytest.mark.slow
def test_a_wrong_form_settles_at_the_optimum_of_what_it_believes():
    # Blind to the second entry: the fit sees what that did, under the last model shown, as a part of the level.
    m, start = np.asarray(PEOPLE.mean), np.ones(2)
    shown = start + np.asarray([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    gram, side = np.zeros((2, 2)), np.zeros(2)
    for level, slope in zip(m, SLOPES, strict=True):
        data = shown @ slope.T + level
        x = shown[:, 0] - shown[:, 0].mean()
        B = np.outer(x @ data / (x @ x), [1.0, 0.0])  # least squares on the first entry
        C, rest = np.eye(2) - B, data[2] - B @ shown[2]
        gram, side = gram + C.T @ C, side + C.T @ rest
    algorithm = pf.plug_in(0.5, 1.0, 3, features=first_only)
    found = pf.run(PLANE, algorithm, 120, theta=start, record=RECORD, dtype="float64").final[0]
    np.testing.assert_allclose(found, np.linalg.solve(gram, side), atol=1e-9)
    assert np.abs(found - np.asarray(pf.optimal_point(PLANE))).max() > 0.1


def test_too_few_deployments_are_refused():
    with pytest.raises(ValueError, match="cannot fit a level and 2 slopes; use 3 or more"):
        pf.run(PLANE, pf.plug_in(0.5, 1.0, 2), 1, theta=np.ones(2))
