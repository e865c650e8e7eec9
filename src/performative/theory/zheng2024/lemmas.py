"""The error of an estimated performative gradient: sampling, curvature, contamination.

    grad L_i = E grad l + J^T E[l s],   J = df_i/dtheta,   s = d log p(Z; f)/df the score
    J-hat = [f-hat^(t-1) - f-hat^t, ...] pinv [theta^(t-1) - theta^t, ...],  H columns

Zheng et al. 2024, Lemmas 5.7 to 5.9, C.1 and C.2. The paper's O(.) hide constants; here all are explicit, for location
families (Z = f(theta) + noise, f-hat the mean of n samples). In its "with probability 1 - phi, E[...] <= ..." an
expectation is bounded with a probability. Here `confidence` None bounds the expectation; a number phi bounds the error
itself, with probability 1 - phi.
"""

import math

import numpy as np

from performative._base.arguments import Count, Positive, Size, Values, checked
from performative._base.messages import coded
from performative.theory.bound import Bound, broken
from performative.theory.index import numbered
from performative.theory.zheng2024.descent import PerformativeAssumptions


@numbered("zheng2024", "Lemma 5.7", "error of the estimated df/dtheta")
@checked
def lemma_5_7(
    given: PerformativeAssumptions, *, eta: Positive, window: Count, reach: Size, samples: Count, variance: Size,
    contamination: Size = 0.0, moves: Values | None = None, independent: bool = False,
    confidence: float | None = None, printed: bool = False,
) -> Bound:  # fmt: skip
    """Lemma 5.7: omega_F >= E |J-hat - J|^2, the error of the estimated df/dtheta.

        bias     = e F + (1 - e) M / 2 sqrt(sum_k |theta_t - theta_{t-k}|^4) / lambda
        variance = 2 H d s^2 / (n lambda^2),        |theta_t - theta_{t-k}| <= k eta G

    Args:
        reach: lambda, the smallest singular value of the differences of the models, [d, H]
        samples: n, samples behind each f-hat; variance: s^2 of one sample, each coordinate, *as it is observed*
        contamination: e, the share of the samples that do not react; `contaminated_variance` has their s^2
        moves: |theta_t - theta_{t-k}|, k = 1, ..., H, if known; they replace eta, G and H
        independent: the models do not depend on the samples behind f-hat, so bias and noise are uncorrelated
        confidence: phi, for Gaussian samples: all H + 1 means err by at most sqrt(2 s^2 log(2 d (H + 1) / phi) / n)

    For a linear map `exact_jacobian_error` has the error itself.

    Differs from the paper:
    - (7) divides the noise by (eta lambda)^2 and the curvature by lambda^2. The differences of the models already
        contain eta, so it should be lambda^2 for both (or eta^2 in place of eta^4, if lambda is that of the gradients).
    - |pinv A| <= 1 / |A| (16) is reversed; |pinv A| = 1 / lambda is what is needed, and holds.
    - sum_k k^4 is at most H^5, where H^6 is printed, and a Taylor expansion at theta_t has no sum over steps.
    - Past models depend on past sampling errors, so (12) holds only for models chosen otherwise.
    - Outliers are sampled too. Their part of the variance is missing in the proof, and their number varies.
    - f_phi = s^2 log(2 / phi) is half of what the Gaussian tail requires (at phi = 0.05 it is exceeded with probability
      0.0548, at 0.001 with 0.0058), is used for one mean where there are H + 1, and |a - b|^2 can be 4 times it.
    """
    check_confidence(confidence)
    d, e = given.dimension, contamination
    unmet = broken(
        (window >= d, f"H >= d = {d}, or the models do not span all directions: H is {window}"),
        (reach > 0, "lambda > 0: the past models must differ in every direction"),
        (e <= 1, f"the contaminated share must be at most 1: it is {e:.4g}"),
        (math.isfinite(given.F) or e == 0, "F must be finite: df/dtheta must be bounded"),
        (math.isfinite(given.M), "M must be finite: f must have a bounded second derivative"),
        (
            math.isfinite(given.G) or given.M == 0 or moves is not None,
            "G must be finite, or `moves` given: the models must be close together",
        ),
    )
    if unmet:
        return squared_error(math.inf, math.inf, unmet=unmet)
    if printed:
        spread = variance * (1.0 if confidence is None else math.log(2.0 / confidence))
        curved = given.M**2 * eta**4 * given.G**4 * window**6 / 2.0 if given.M > 0 else 0.0
        inside = curved + 2.0 * spread * window * d / (samples * eta**2)
        bias = 2.0 * e**2 * given.F**2 if e > 0 else 0.0
        return squared_error(math.sqrt(bias), (1.0 - e) ** 2 * inside / reach**2, uncorrelated=True)
    far = eta * given.G * np.arange(1, window + 1) if moves is None and given.M > 0 else np.asarray(moves, float)
    curved = given.M / 2.0 * math.sqrt(float(np.sum(far**4))) if given.M > 0 else 0.0
    bias = (e * given.F if e > 0 else 0.0) + (1.0 - e) * curved / reach
    noise = 2.0 * window * d * variance / samples
    if confidence is not None:  # |a - b|^2 <= 4 max(|a|^2, |b|^2)
        noise *= 2.0 * 2.0 * math.log(2.0 * d * (window + 1) / confidence)
    return squared_error(bias, noise / reach**2, uncorrelated=independent and confidence is None)


def squared_error(bias: float, variance: float, uncorrelated: bool = False, unmet: tuple[str, ...] = ()) -> Bound:
    """A bound on a mean squared error, (bias + sqrt(variance))^2, or the sum of squares if they are uncorrelated."""
    cross = 0.0 if uncorrelated or bias == 0 or variance == 0 else 2.0 * bias * math.sqrt(variance)
    return Bound({"squared_bias": bias**2, "cross": cross, "variance": variance}, unmet, {"bias": bias})


@checked
def exact_jacobian_error(differences: Values, variance: Size, samples: Count, outputs: Count | None = None) -> float:
    """E |J-hat - J|_F^2 for a linear map, models chosen in advance and no contamination.

        outputs s^2 / n tr(B^T (I + 1 1^T) B),   B = pinv(differences), [H, d]

    All H columns share the error of the current f-hat: hence 1 1^T. Raises if the models do not span all directions:
    J-hat learns nothing about the missing ones.
    """
    A = np.atleast_2d(np.asarray(differences, np.float64))
    if not A.size or not np.all(np.isfinite(A)) or np.linalg.matrix_rank(A) < len(A):
        text = f"exact_jacobian_error: differences, [d, H] = {list(A.shape)}, must be finite and span d directions."
        raise ValueError(coded("models-do-not-span", text))
    B = np.linalg.pinv(A)
    m = B.shape[1] if outputs is None else outputs
    return m * variance / samples * float(np.sum(B**2) + np.sum(B.sum(axis=0) ** 2))


@checked
def contaminated_variance(variance: Size, contamination: float, outliers: Size, offset: float) -> float:
    """Variance of one sample of (1 - e) D + e Q: (1 - e) s_D^2 + e s_Q^2 + e (1 - e) |mean_D - mean_Q|^2."""
    e = contamination
    if not 0 <= e <= 1:
        raise ValueError(f"contamination must lie in [0, 1]; got {e}.")
    return (1.0 - e) * variance + e * outliers + e * (1.0 - e) * offset**2


@numbered("zheng2024", "Lemma 5.8", "error of the first term of the performative gradient")
@checked
def lemma_5_8(
    given: PerformativeAssumptions, *, samples: Count, variance: Size, confidence: float | None = None,
    printed: bool = False,
) -> Bound:  # fmt: skip
    """Lemma 5.8: E |mean grad l - E grad l|^2 <= L^2 V / n, V = E |Z - E Z|^2 = `variance`, all coordinates.

    Equality if grad l is linear in z (pricing, squared loss). confidence: V / (n phi), by Markov's inequality. Differs
    from the paper: O(f_phi) is printed, without 1 / n, and is used here with constant 1 (printed=True).
    """
    check_confidence(confidence)
    if math.isinf(variance):
        return squared_error(math.inf, math.inf, unmet=("the data must have a finite variance",))
    if printed:
        return squared_error(0.0, variance * (1.0 if confidence is None else math.log(2.0 / confidence)))
    return squared_error(0.0, given.L**2 * variance / samples / (1.0 if confidence is None else confidence))


@numbered("zheng2024", "Lemma 5.9", "error of its second term, for data and for outliers")
@checked
def lemma_5_9(
    given: PerformativeAssumptions, jacobian_error: Size, *, samples: Count, fisher: Size, offset: Size = 0.0,
    outlier_score: Size | None = None, spread: Size = 0.0, printed: bool = False,
) -> Bound:  # fmt: skip
    """Lemma 5.9: omega_D^2 or omega_Q^2, the error of the second term, J-hat^T mean l s(z; f-hat).

        omega_D = l_max [(sqrt(I) + o) sqrt(omega_F) + F (2 sqrt(I / n) + o)],     I = `fisher`
        omega_Q = l_max sqrt(outlier_score) (sqrt(omega_F) + F)

    Args:
        jacobian_error: omega_F, from Lemma 5.7
        fisher: E |s(Z; f)|^2, the trace of Fisher's information of one sample; d / sigma^2 for N(f, sigma^2 I)
        offset: o, how far contamination moves the score: e |mean_Q - mean_D| / sigma^2
        outlier_score: mean |s(z; f-hat)|^2 of outliers; if given, omega_Q^2 is returned
        spread: f_phi, in the printed form only: l_max^2 d (omega_F + f_phi F^2 / n) and 2 l_max^2 d (omega_F + F^2)

    For Gaussian samples, whose mean and spread are independent, hence so are |J-hat - J| and the scores. With
    contamination they nearly are: there the product of two roots of means replaces the mean of a product.

    Differs from the paper: the constants are explicit; the printed F^2 f_phi has the wrong unit (s is 1 / f); l s has
    its own sampling error; the effect of outliers is not O(d) but grows with their score, and so with their distance;
    contamination moves f-hat, and with it the scores of clean samples.
    """
    unmet = broken(
        (math.isfinite(given.l_max), "l_max must be finite: the loss must be bounded (with Gaussian data few are)"),
        (math.isfinite(given.F), "F must be finite: df/dtheta must be bounded"),
        (math.isfinite(jacobian_error), "omega_F must be finite: see Lemma 5.7"),
    )
    if unmet:
        return squared_error(math.inf, math.inf, unmet=unmet)
    l, F, root = given.l_max, given.F, math.sqrt(jacobian_error)
    if outlier_score is not None:
        if printed:
            return squared_error(0.0, 2.0 * l**2 * given.dimension * (jacobian_error + F**2))
        return squared_error(l * math.sqrt(outlier_score) * (root + F), 0.0)
    if printed:
        return squared_error(0.0, l**2 * given.dimension * (jacobian_error + spread * F**2 / samples))
    score = math.sqrt(fisher)
    return squared_error(l * ((score + offset) * root + F * (2.0 * score / math.sqrt(samples) + offset)), 0.0)


@numbered("zheng2024", "Lemma C.1", "how far clients drift apart in R local steps")
@checked
def lemma_c_1(given: PerformativeAssumptions, eta: Positive, local_steps: Count, printed: bool = False) -> Bound:
    """Lemma C.1: sum alpha_i w_i E |theta_bar - theta_i|^2 within R steps of an average, w_i = Lambda_i^2.

        ((R - 1) eta G)^2 min(max w_i, 4 sum alpha_i (1 - alpha_i)^2 w_i)

    Differs from the paper: ((R - 1) eta G)^2 sum alpha_i w_i with w_i = (1 + gamma_i)^2. Its first inequality drops the
    mean, which is valid for weights alpha_i but not for alpha_i w_i: two clients with alpha = (0.1, 0.9), w = (16, 1)
    that move apart at full speed have 5.22 ((R - 1) eta G)^2, and 2.5 is printed.
    """
    if local_steps == 1:
        return squared_error(0.0, 0.0)
    smooth = printed or np.all(np.isfinite(given.lipschitz))
    unmet = broken(
        (math.isfinite(given.G), "G must be finite: the directions must be bounded"),
        (smooth, "smoothness must be finite: grad L_i must be Lipschitz"),
    )
    if unmet:
        return squared_error(math.inf, math.inf, unmet=unmet)
    walked = ((local_steps - 1) * eta * given.G) ** 2
    if printed:
        return squared_error(0.0, walked * float(given.alpha @ (1.0 + given.gammas) ** 2))
    w = given.lipschitz**2
    return squared_error(0.0, walked * min(float(w.max()), float(4.0 * given.alpha @ ((1.0 - given.alpha) ** 2 * w))))


@numbered("zheng2024", "Lemma C.2", "error of the whole performative gradient under contamination")
@checked
def lemma_c_2(
    given: PerformativeAssumptions, *, first: Size, second: Size, contamination: float = 0.0, outliers: Size = 0.0,
    distance: Size = 0.0, fisher: Size = 0.0, outlier_first: Size = 0.0, printed: bool = False,
) -> Bound:  # fmt: skip
    """Lemma C.2: E |g_i - grad L_i|^2 for data of which a fraction e does not react.

        (1 - e) (sqrt(first) + omega_D)^2 + e (L W_1 + sqrt(outlier_first) + l_max F sqrt(I) + omega_Q)^2

    Args:
        first, second: Lemma 5.8, and omega_D^2 of Lemma 5.9; outliers: omega_Q^2 of Lemma 5.9
        distance: W_1(D_i(theta), Q_i), the largest
        fisher: I of Lemma 5.9: l_max F sqrt(I) bounds the second term, which outliers do not show
        outlier_first: Lemma 5.8 for outliers, variance over (number of them)

    By convexity: g is (1 - e) times the gradient of clean samples plus e times that of outliers.

    Differs from the paper: (1 - e) omega_D^2 + e (L W_1 + omega_Q + omega_D)^2. It treats the first term as exact, and
    L W_1 as a bound on the whole of grad L_i minus that of Q, although the second term of Q is 0 for any W_1.
    """
    e, D = contamination, math.sqrt(second)
    if not 0 <= e <= 1:
        raise ValueError(f"contamination must lie in [0, 1]; got {e}.")
    needed = e > 0 and fisher > 0 and not printed
    unmet = broken(
        (math.isfinite(first + second), "Lemmas 5.8 and 5.9 must give a bound"),
        (
            e == 0 or math.isfinite(outliers + outlier_first + distance),
            "W_1(D, Q), omega_Q and the variance of the outliers must be finite",
        ),
        (
            not (needed and math.isinf(given.l_max * given.F)),
            "l_max and F must be finite: the second term must be bounded",
        ),
    )
    if unmet:
        return squared_error(math.inf, math.inf, unmet=unmet)
    if printed:
        wrong = given.L * distance + math.sqrt(outliers) + D if e > 0 else 0.0
        return squared_error(0.0, (1.0 - e) * second + e * wrong**2)
    unseen = given.l_max * given.F * math.sqrt(fisher) if e > 0 and fisher > 0 else 0.0
    wrong = given.L * distance + math.sqrt(outlier_first) + unseen + math.sqrt(outliers) if e > 0 else 0.0
    return squared_error(0.0, (1.0 - e) * (math.sqrt(first) + D) ** 2 + e * wrong**2)


def check_confidence(confidence: float | None) -> None:
    """Raise unless it is None or between 0 and 1."""
    if confidence is not None and not 0 < confidence < 1:
        raise ValueError(f"confidence is the failure probability phi and must lie between 0 and 1; got {confidence}.")
