"""Claims of privacy against the truth: wrong is an epsilon below the true one, or less noise than it takes.

The truth is found without the accountant. Where everybody is in every sum it is exact (Balle and Wang 2018). Where
rows are sampled, two neighbors are crafted whose sums are mixtures of Gaussians; the losses of what is seen of them,
in bins and rounded down, are composed by FFT. That is what an attacker really gets, so no claim may be below it.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

import performative as pf
from performative._base.sampling import shuffled_positions
from performative.privacy import calibrate, guarantee, spent

# Rounding of our own root finding and of sums of the FFT, relative to epsilon.
CLOSE = 1e-6


def gaussian_delta(epsilon, shift):
    """delta of a Gaussian whose mean moves by `shift` standard deviations."""
    cdf = scipy.special.log_ndtr
    return math.exp(cdf(shift / 2 - epsilon / shift)) - math.exp(epsilon + cdf(-shift / 2 - epsilon / shift))


def gaussian_epsilon(shift, delta):
    """The exact epsilon of that."""
    if gaussian_delta(0.0, shift) <= delta:
        return 0.0
    highest = shift**2 / 2 + 40 * shift
    return scipy.optimize.brentq(lambda e: gaussian_delta(e, shift) - delta, 0.0, highest, xtol=1e-12, rtol=1e-12)


def attacked_epsilon(with_person, without, z, steps, delta):
    """What is seen of `steps` sums, at least: laws are {mean: chance} of Gaussians with deviation z."""
    return max(_one_way(a, b, z, steps, delta) for a, b in ((with_person, without), (without, with_person)))


def _one_way(one, other, z, steps, delta, bins=2000, grid=2e-3):
    means = [*one, *other]
    edges = np.linspace(min(means) - 9 * z, max(means) + 9 * z, bins + 1)
    p, q = (sum(c * np.diff(scipy.special.ndtr((edges - m) / z)) for m, c in law.items()) for law in (one, other))
    seen = (p > 1e-30) & (q > 1e-30)
    loss = np.floor(np.log(p[seen] / q[seen]) / grid).astype(int)
    low = loss.min()
    law = np.bincount(loss - low, weights=p[seen])
    size = steps * (len(law) - 1) + 1
    total = np.clip(np.fft.irfft(np.fft.rfft(law, 2 * size) ** steps, 2 * size)[:size], 0, None)
    losses = grid * (steps * low + np.arange(size))

    def seen_delta(epsilon):
        return float(np.sum(total * np.clip(-np.expm1(epsilon - losses), 0, None)))

    if seen_delta(0.0) <= delta:
        return 0.0
    return scipy.optimize.brentq(lambda e: seen_delta(e) - delta, 0.0, losses[-1] + 1, xtol=1e-9)


def pairs(batch, rows):
    """Neighbors for a sampler: [(law of the sum with the person, law without)]; others have gradients 0, or -1."""
    if isinstance(batch, pf.Poisson):
        rate, most = float(batch.rate), batch.n_max
        if most >= rows:
            return [({0: 1 - rate, 1: rate}, {0: 1.0})]
        return [(_cut(rows, rate, most, person=True), _cut(rows, rate, most, person=False))]
    if isinstance(batch, pf.Fixed):
        times = {k: scipy.stats.binom.pmf(k, batch.n, 1 / rows) for k in range(batch.n + 1)}
        return [
            ({2 * k: c for k, c in times.items()}, {0: 1.0}),  # the person at +1 becomes one of the others at -1
            (times, {-k: c for k, c in times.items()}),  # others at 0, the person from +1 to -1
        ]
    rate = batch.n / rows
    return [({0: 1 - rate, 2: rate}, {0: 1.0}), ({0: 1 - rate, 1: rate}, {0: 1 - rate, -1: rate})]


def _cut(rows, rate, most, person):
    """The sum where others have -1 and the person +1, at most `most` of those who came kept at random."""
    law = {}
    for others in range(rows):
        chance = scipy.stats.binom.pmf(others, rows - 1, rate)
        came = [(others, 0, chance)]
        if person:
            came = [(others, 0, chance * (1 - rate)), (others, 1, chance * rate)]
        for there, here, likely in came:
            kept = min(there + here, most)
            mine = here * kept / max(there + here, 1)  # the chance that the person is among those kept
            for total, share in ((-kept, 1 - mine), (2 - kept, mine)):
                law[total] = law.get(total, 0.0) + likely * share
    return {mean: chance for mean, chance in law.items() if chance > 1e-25}


def least_epsilon(batch, rows, z, steps, delta):
    """What a true epsilon is at least."""
    if isinstance(batch, (pf.Uniform, pf.Shuffled)) and batch.n == rows:  # everybody; an epoch is one batch
        return gaussian_epsilon(2 * math.sqrt(steps) / z, delta)
    return max(attacked_epsilon(*pair, z, steps, delta) for pair in pairs(batch, rows))


def sampler(seed, random, rows):
    """One of the samplers that are accounted for, in turn."""
    n = int(random.integers(1, max(2, rows // 3)))
    rate = float(np.float32(random.uniform(0.02, 0.5)))
    kinds = (
        pf.Uniform(n),
        pf.Poisson(rate, rows),
        pf.Poisson(rate, max(1, round(rate * rows))),
        pf.Fixed(min(n, 4)),
        pf.Uniform(rows),
        pf.Shuffled(rows),
    )
    return kinds[seed % len(kinds)]


def world(seed):
    random = np.random.default_rng(seed)
    rows, delta = int(random.integers(4, 60)), float(10 ** random.uniform(-6, -2))
    return sampler(seed, random, rows), rows, float(random.uniform(0.7, 6.0)), int(random.integers(1, 20)), delta


def judge(tally, name, claimed, least, about):
    """Whether a claim covers what is known to leak; infinity is "does not know"."""
    said = None if math.isinf(claimed) else claimed >= least * (1 - CLOSE) - CLOSE
    tally(name, said, True, world=f"{about}: claimed {claimed:.6g}, at least {least:.6g}")


def test_without_sampling_epsilon_is_exact(tally):
    random = np.random.default_rng(0)
    for seed in range(200):
        z, steps = float(10 ** random.uniform(-0.5, 2)), int(10 ** random.uniform(0, 4))
        delta = float(10 ** random.uniform(-12, -1))
        claimed, truth = spent(z, steps, delta).epsilon, gaussian_epsilon(2 * math.sqrt(steps) / z, delta)
        about = f"world {seed}: z={z:.4g}, {steps} steps, delta={delta:.3g}"
        judge(tally, "spent: everyone", claimed, truth, about)
        assert claimed <= truth * (1 + 1e-5) + 1e-5, f"too careful in {about}: {claimed} for {truth}"


def test_noise_without_sampling_is_enough(tally):
    random = np.random.default_rng(1)
    for seed in range(25):
        epsilon, delta = float(10 ** random.uniform(-2, 1.3)), float(10 ** random.uniform(-9, -1))
        steps = int(10 ** random.uniform(0, 4))
        noise = calibrate(epsilon, delta, steps)
        truth = gaussian_epsilon(2 * math.sqrt(steps) / noise, delta)
        tally(
            "calibrate: everyone", truth <= epsilon * (1 + CLOSE), True, world=f"{seed}: {epsilon=} {delta=} {steps=}"
        )
        assert truth >= 0.99 * epsilon, "more noise than it takes"


def sampled_worlds(tally, seeds):
    for seed in seeds:
        batch, rows, z, steps, delta = world(seed)
        claimed = spent(z, steps, delta, batch=batch, rows=rows).epsilon
        least = least_epsilon(batch, rows, z, steps, delta)
        about = f"world {seed}: {batch} of {rows}, z={z:.4g}, {steps} steps, delta={delta:.3g}"
        judge(tally, f"spent: {type(batch).__name__}", claimed, least, about)


def test_sampling_claims_no_more_than_it_keeps(tally):
    sampled_worlds(tally, range(6))


@pytest.mark.slow
def test_sampling_claims_no_more_than_it_keeps_in_many_worlds(tally):
    sampled_worlds(tally, range(100, 500))


@pytest.mark.slow
def test_noise_for_samples_is_enough(tally):
    for seed in range(60):
        batch, rows, _, steps, delta = world(seed)
        epsilon = float(10 ** np.random.default_rng(seed).uniform(-0.7, 1))
        noise = calibrate(epsilon, delta, steps, batch=batch, rows=rows)
        least = least_epsilon(batch, rows, noise, steps, delta)
        about = f"world {seed}: {batch} of {rows}, {steps} steps, {epsilon=:.4g}, {delta=:.3g}, noise {noise:.4g}"
        enough = least <= epsilon * (1 + CLOSE) + CLOSE
        tally(f"calibrate: {type(batch).__name__}", enough, True, world=f"{about}, at least {least:.6g}")


def private(batch, z, **parts):
    return pf.pcsgd(0.1, clip=float(parts.pop("clip", 1.0)), noise_multiplier=z, batch=batch, **parts)


def guaranteed_worlds(tally, seeds, kinds):
    """Whole problems: tables of several sizes, several local steps, several clients."""
    for seed in seeds:
        random = np.random.default_rng(seed)
        sizes = random.integers(6, 30, random.integers(1, 4))
        tables = pf.populations.Database([random.normal(size=n) for n in sizes])
        problem = pf.Problem(pf.losses.squared, tables)
        n, rate = int(random.integers(1, sizes.min() + 1)), float(np.float32(random.uniform(0.05, 0.5)))
        options = {
            "Uniform": pf.Uniform(n),
            "Fixed": pf.Fixed(min(n, 3)),
            "Poisson": pf.Poisson(rate, int(sizes.max())),
            "Poisson, cut": pf.Poisson(rate, max(1, round(rate * sizes.min()))),
            "Whole": pf.batches.Whole(),
        }
        name = kinds[seed % len(kinds)]
        batch, E, rounds = options[name], int(random.integers(1, 4)), int(random.integers(1, 5))
        z, delta = float(random.uniform(0.8, 5.0)), float(10 ** random.uniform(-5, -2))
        claimed = guarantee(problem, private(batch, z, local_steps=E, clip=random.uniform(0.1, 9))).spent(rounds, delta)
        steps = E * rounds
        if name == "Whole":
            least = gaussian_epsilon(2 * math.sqrt(steps) / z, delta)
        else:
            # One person more, too, where people are added or removed.
            held = {n + more for n in sizes.tolist() for more in ((0, 1) if name.startswith("Poisson") else (0,))}
            least = max(least_epsilon(batch, rows, z, steps, delta) for rows in held)
        about = f"world {seed}: {name} {batch} of {sizes}, z={z:.4g}, {steps} steps, delta={delta:.3g}"
        judge(tally, f"guarantee: {name}", claimed.epsilon, least, about)


def test_a_guarantee_claims_no_more_than_it_keeps(tally):
    guaranteed_worlds(tally, range(20), ("Whole",))
    guaranteed_worlds(tally, range(4), ("Uniform", "Fixed", "Poisson", "Poisson, cut"))


@pytest.mark.slow
def test_a_guarantee_claims_no_more_than_it_keeps_in_many_worlds(tally):
    guaranteed_worlds(tally, range(100, 300), ("Uniform", "Fixed", "Poisson", "Poisson, cut", "Whole"))


def test_clients_are_protected_by_the_noise_that_the_sum_has(tally):
    # The sum of p_i (update_i + noise_i), noise_i = z clip / sqrt(N): client i moves it by up to 2 p_i clip.
    for seed in range(100):
        random = np.random.default_rng(seed)
        clients = int(random.integers(1, 30))
        weights = (
            random.dirichlet(np.full(clients, random.uniform(0.3, 5))) if seed % 4 else np.full(clients, 1 / clients)
        )
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(clients), 0.0, 1.0), weights)
        z, rounds, delta = (
            float(random.uniform(0.5, 9)),
            int(random.integers(1, 200)),
            float(10 ** random.uniform(-7, -1)),
        )
        noisy = pf.p_fedavg(0.1, channel=pf.channels.ClippedNoise(float(random.uniform(0.1, 9)), z))
        claimed = guarantee(problem, noisy).spent(rounds, delta).epsilon
        deviation = z * math.sqrt(np.sum(weights**2) / clients)
        truth = gaussian_epsilon(2 * weights.max() * math.sqrt(rounds) / deviation, delta)
        judge(
            tally, "guarantee: clients", claimed, truth, f"world {seed}: {clients} clients, {z=:.4g}, {rounds} rounds"
        )
        assert claimed <= truth * (1 + 1e-4) + 1e-4


@pytest.mark.slow
def test_clients_that_are_drawn_are_protected_by_the_draw(tally):
    for seed in range(40):
        random = np.random.default_rng(seed)
        clients = int(random.integers(3, 30))
        scheme = pf.SchemeTwo(int(random.integers(1, clients)))
        problem = pf.Problem(pf.losses.squared, pf.populations.Gaussian(np.zeros(clients), 0.0, 1.0))
        z, rounds, delta = float(random.uniform(1, 6)), int(random.integers(1, 20)), float(10 ** random.uniform(-5, -2))
        noisy = pf.p_fedavg(0.1, channel=pf.channels.ClippedNoise(1.0, z), participation=scheme)
        claimed = guarantee(problem, noisy).spent(rounds, delta).epsilon
        least = least_epsilon(pf.Uniform(scheme.k), clients, z, rounds, delta)
        judge(tally, "guarantee: clients drawn", claimed, least, f"world {seed}: {scheme} of {clients}, {z=:.4g}")


class Sneaky(pf.batches.AbstractBatch):
    """A sampler of one's own, which may look at anything."""

    def expected(self, population):
        return 1.0

    def draw(self, key, standing_key, population, theta, steps, memory):
        return population.draw(key, (steps, 1), theta), None


class Louder(pf.estimators.Clipped):
    """A subclass may do anything."""


def refusals():
    """(name, problem, algorithm): nothing can be promised for these."""
    table = pf.Problem(pf.losses.squared, pf.populations.Database(np.zeros((3, 20))))
    classes = pf.populations.Reweighted(np.zeros((3, 20, 2)), np.tile([0, 1], (3, 10)), 0.5)
    clipped = pf.estimators.Clipped(1.0, 4.0)
    work = pf.participation.LocalWork(pf.Full(), pf.participation.AdaComm(2))
    noisy = pf.channels.ClippedNoise(1.0, 4.0)
    sampled = {"batch": pf.Uniform(5)}

    def by(estimator, **parts):
        return pf.p_fedavg(0.1, estimator=estimator, **{**sampled, **parts})

    yield "no clip", table, pf.p_fedavg(0.1, **sampled)
    yield "no noise", table, private(pf.Uniform(5), 0.0)
    yield "no noise of clients", table, pf.p_fedavg(0.1, channel=pf.channels.ClippedNoise(1.0, 0.0))
    yield "DiceSGD", table, pf.dicesgd(0.1, clip=1.0, memory_clip=1.0, noise_multiplier=4.0, **sampled)
    yield "AdaptiveSize", table, by(pf.estimators.AdaptiveSize(pf.estimators.Performative(3), 0.1))
    yield "Filtered", table, by(pf.estimators.Filtered(clipped))
    yield "ControlVariate", table, by(pf.estimators.ControlVariate(clipped), aggregator=pf.aggregators.Scaffold())
    yield "a subclass", table, by(Louder(1.0, 4.0))
    yield "a sampler of one's own", table, private(Sneaky(), 4.0)
    for estimate, more in (("exact", {}), ("last", {}), ("batch", {"samples": 4})):
        chosen = pf.participation.PowerOfChoice(2, 3, estimate=estimate, **more)
        yield f"PowerOfChoice {estimate}", table, private(pf.Uniform(5), 4.0, participation=chosen)
        yield f"clients by PowerOfChoice {estimate}", table, pf.p_fedavg(0.1, channel=noisy, participation=chosen)
    yield "AdaComm", table, private(pf.Uniform(5), 4.0, participation=work)
    yield "clients by AdaComm", table, pf.p_fedavg(0.1, channel=noisy, participation=work)
    yield "rows by class", pf.Problem(pf.losses.cross_entropy(lambda w, x: w @ x), classes), private(pf.Uniform(5), 4.0)
    yield "clients without clip", table, by(clipped, channel=pf.channels.Sparse(1))


def test_what_cannot_be_certified_is_refused(tally):
    for name, problem, algorithm in refusals():
        unit = "client" if name.startswith(("clients", "no noise of")) else "example"
        promise = guarantee(problem, algorithm, unit=unit)
        tally("guarantee: refuses", not promise.certified, True, world=name)
        assert promise.why and math.isinf(promise.spent(1, 1e-5).epsilon), name


def test_what_is_published_beside_models_is_refused(tally):
    problem = pf.Problem(pf.losses.squared, pf.populations.Database(np.zeros((1, 20))))
    for name in ("losses", "clip counts", "participants", "error memory"):
        promise = guarantee(problem, private(pf.Uniform(5), 4.0), published=(name,))
        tally("guarantee: refuses", not promise.certified, True, world=name)


def test_choices_that_looked_at_people_are_told(tally):
    plain = pf.Problem(pf.losses.squared, pf.populations.Database(np.zeros((1, 20))))
    looked = dataclasses.replace(plain, from_data="scaled")
    for name, problem, algorithm, told in (
        ("nothing", plain, private(pf.Uniform(5), 4.0), False),
        ("problem", looked, private(pf.Uniform(5), 4.0), True),
        ("algorithm", plain, dataclasses.replace(private(pf.Uniform(5), 4.0), from_data="clip"), True),
        ("pooled", looked.pooled(), private(pf.Uniform(5), 4.0), True),
        ("refused too", looked, pf.p_fedavg(0.1), True),
    ):
        tally("guarantee: not covered", bool(guarantee(problem, algorithm).not_covered), told, world=name)


def test_shuffles_are_uniform(tally):
    # Where the last, the first and the second of n go; a chance below 1e-6 is no chance.
    @jax.jit
    def sent(key, count):
        positions = jnp.stack([count - 1, jnp.int32(0), jnp.int32(1)])
        return jax.vmap(lambda k: shuffled_positions(k, positions, count))(jax.random.split(key, 6000))

    for seed in range(24):
        count = int(np.random.default_rng(seed).integers(3, 31))
        where = np.asarray(sent(jax.random.key(seed), jnp.int32(count)))
        for name, law in (("single", where[:, :1]), ("pair", where[:, :2]), ("triple", where)):
            q, cells = law.shape[1], math.perm(count, law.shape[1])
            if cells > 1000:
                continue
            seen = np.unique(law @ count ** np.arange(q), return_counts=True)[1]
            wanted = len(where) / cells
            chi = np.sum((seen - wanted) ** 2) / wanted + (cells - len(seen)) * wanted
            even = bool(scipy.stats.chi2.sf(chi, cells - 1) > 1e-6)
            tally(f"shuffle: {name} uniform", even, True, world=f"seed {seed}: {count} rows")
