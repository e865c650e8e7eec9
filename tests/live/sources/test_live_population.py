"""A model goes out, rows of exactly that version come back, and they are what `client_round` learns from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import performative as pf
from performative.live.sources import population
from performative.live.sources.deployment import Deployed
from performative.live.sources.population import Live, Observed, TooFewRows, observe
from performative.live.sources.publish import Callback, ModelFile
from performative.live.sources.readers import Folder, Function
from performative.live.sources.rows import OLDER, Rows
from performative.testing import check_part
from performative.testing.uses import slice_client

RNG = np.random.default_rng(0)
X, LABELS = RNG.standard_normal((7, 6, 3)), RNG.integers(0, 2, (7, 6))
COUNT = [1, 2, 3, 4, 6, 5, 2]


class Clock:
    """Stands still, but for those who sleep; meanwhile something may happen."""

    def __init__(self, meanwhile=lambda: None):
        self.now, self.meanwhile = 0.0, meanwhile

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.meanwhile()


class Village:
    """People who answer to each model that they are shown: x = x_bar - 0.5 theta, n of them under every version."""

    def __init__(self, n=4):
        self.n, self.records, self.looks = n, [], 0

    def show(self, deployed):
        base = np.random.default_rng(deployed.version).standard_normal((self.n, 2))
        for x in base - 0.5 * deployed.theta:
            self.records.append({"model_version": deployed.version, "a": x[0], "b": x[1], "y": float(x[0] > 0)})

    def answer(self, version):
        self.looks += 1
        return list(self.records)

    def live(self, **options):
        return Live(Callback(self.show), Function(self.answer, ["a", "b"], "y"), **options)


class TestLive:
    def test_each_version_has_its_own_rows(self):
        village = Village()
        live = village.live()
        for version, theta in [(1, [0.0, 0.0]), (2, [1.0, -1.0]), (2, [1.0, -1.0]), (5, [2.0, 2.0])]:
            live.deploy(Deployed(version, np.asarray(theta), version))
            rows = live.sample(version)
            expected = np.random.default_rng(version).standard_normal((4, 2)) - 0.5 * np.asarray(theta)
            np.testing.assert_array_equal(rows.x, expected)
            np.testing.assert_array_equal(rows.y, expected[:, 0] > 0)
        assert rows.skipped == {OLDER: 8}  # deployed twice, version 2 was shown once

    def test_too_few_rows_say_what_to_do(self):
        village = Village()
        live = village.live(minimum=5)
        live.deploy(Deployed(1, np.zeros(2), 0))
        village.records.append({"model_version": 2, "a": None, "b": 1.0, "y": 0.0})
        village.records.append({"model_version": 2, "a": 1.0, "b": 1.0, "y": 0.0})
        with pytest.raises(TooFewRows) as caught:
            live.sample(2)
        message = str(caught.value)
        for part in (
            "1 rows of version 2 arrived within 0 s, and minimum=5 are needed", "4 rows of other versions", "patience=",
            "1 with no finite number in column 'a'", "4 with an older version", "scores with version 2",
        ):  # fmt: skip
            assert part in message
        assert caught.value.rows.version == 2 and len(caught.value.rows) == 1
        with pytest.raises(TooFewRows, match="0 rows of version 9"):
            live.sample(9)

    def test_rows_are_waited_for(self, tmp_path, monkeypatch):
        live = Live(ModelFile(tmp_path / "model.json"), Folder(tmp_path, ["a"]), minimum=3, patience=30.0, poll=0.02)

        def serve():
            """Scores with the model that is there and writes row after row, as a service would."""
            assert (tmp_path / "model.json").exists()
            with (tmp_path / "rows.csv").open("w") as file:
                file.write("model_version,a\n0,7\n")
                for i in range(3):
                    file.write(f"4,1.{i}")
                    file.flush()
                    yield
                    file.write("25\n")
                    file.flush()
                    yield

        service = serve()
        monkeypatch.setattr(population, "time", Clock(lambda: next(service)))
        live.deploy(Deployed(4, np.ones(1), 0))
        rows = live.sample(4)
        assert rows.x[:, 0].tolist() == [1.025, 1.125, 1.225] and rows.y is None

    def test_patience_ends(self, monkeypatch):
        village = Village()
        monkeypatch.setattr(population, "time", Clock())
        live = village.live(patience=0.25, poll=0.0625)
        with pytest.raises(TooFewRows, match=r"within 0\.25 s"):
            live.sample(1)
        assert village.looks == 5

    def test_the_newest_rows_are_kept(self):
        village = Village(n=10)
        live = village.live(most=3)
        live.deploy(Deployed(1, np.zeros(2), 0))
        kept, every = live.sample(1), village.live().reader.read(1)
        np.testing.assert_array_equal(kept.x, every.x[-3:])
        np.testing.assert_array_equal(kept.y, every.y[-3:])

    def test_a_reader_of_other_rows_is_found_out(self):
        class Stale:
            def read(self, version):
                return Rows(np.ones((3, 1)), None, version - 1)

        with pytest.raises(ValueError, match=r"Stale\.read\(2\) returned rows of version 1"):
            Live(Callback(print), Stale()).sample(2)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"minimum": 0}, "minimum must be a whole number >= 1"),
            ({"most": 0}, "most must be a whole number >= 1"),
            ({"minimum": 5, "most": 4}, "most=4 rows must be at least minimum=5"),
            ({"patience": -1.0}, "patience must be a finite number of seconds >= 0"),
            ({"patience": np.inf}, "patience must be a finite number"),
            ({"poll": 0.0}, "poll must be a finite number of seconds above 0"),
        ],
    )
    def test_refused(self, options, message):
        with pytest.raises(ValueError, match=message):
            Village().live(**options)


COMMON = {
    "types_stay",
    "jit_equals_eager",
    "vmap_equals_loop",
    "compiles_once",
    "sweeps",
    "nodes",
    "expectations",
    "in_a_round",
}


class TestObserved:
    @pytest.mark.parametrize(
        "part",
        [
            pytest.param(Observed(X), marks=pytest.mark.slow),
            pytest.param(Observed(X, LABELS.astype(float)), marks=pytest.mark.slow),
            Observed(X, LABELS, COUNT, classes=2),
        ],
        ids=["features", "numbers", "classes"],
    )
    def test_contract(self, part):
        assert set(check_part(part)) == COMMON | ({"padding"} if part.count is not None else set())

    @pytest.mark.slow
    @pytest.mark.parametrize("batch", [pf.Fixed(3), pf.Whole()], ids=["Fixed", "Whole"])
    def test_as_people_who_do_not_react(self, batch, double_precision):
        """Bit for bit what `Strategic` of strength 0 gives."""
        algorithm = pf.p_fedavg(0.1, local_steps=2, batch=batch, deploy="round")
        still = pf.populations.Strategic(X, LABELS, 0.0, count=COUNT)
        for seen in (Observed(X, LABELS, COUNT, 2), Observed(X, LABELS.astype(float), COUNT)):
            one, two = (
                pf.run(pf.Problem(pf.losses.logistic(0.1), population), algorithm, rounds=5, seed=3).theta
                for population in (still, seen)
            )
            np.testing.assert_array_equal(one, two)
        assert np.any(two[:, -1] != 0)

    def test_theta_does_not_move_the_rows(self):
        mine = slice_client(jax.tree.map(jnp.asarray, Observed(X, LABELS, COUNT)), 3)
        noise, weight = mine.quadrature(jnp.zeros(3), 8)
        for theta in (np.zeros(3), np.full(3, 1e6)):
            x, y = jax.vmap(lambda u, theta=theta: mine.sample(u, None, jnp.asarray(theta)))(noise)
            np.testing.assert_allclose(x[:4], X[3][:4], rtol=1e-6)
            np.testing.assert_array_equal(y[:4], LABELS[3][:4])
        np.testing.assert_allclose(weight, [0.25] * 4 + [0, 0])
        assert not mine.smooth and mine.model_shape() == (3,)

    def test_a_derivative_of_the_samples_is_refused(self):
        """It would be 0, as if nobody reacted."""
        estimator = pf.estimators.Performative(None, term="pathwise")
        problem = pf.Problem(pf.losses.logistic(0.1), Observed(X, LABELS, COUNT))
        with pytest.raises(ValueError, match="their derivative misses the reaction"):
            pf.run(problem, pf.Algorithm(rate=0.1, estimator=estimator, batch=pf.Fixed(2)), rounds=1)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((X[0],), r"x must be \[clients, rows, features\]"),
            ((X[:, :0],), r"x must be \[clients, rows, features\]"),
            ((X, LABELS[0]), r"y must be \[clients, rows\]"),
            ((np.where(X > 2, np.nan, X),), "x must be finite"),
            ((X, LABELS, [7] * 7), "count must lie in 1..6"),
            ((X, LABELS + 1, None, 2), "whole labels y from 0 to 1"),
            ((X, LABELS.astype(float), None, 2), "whole labels"),
            ((X, None, None, 2), "whole labels"),
            ((X, LABELS, None, 0), "classes must be a whole number"),
        ],
    )
    def test_refused(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            Observed(*arguments)


class TestObserve:
    @pytest.mark.parametrize(("n", "capacity", "room"), [(1, None, 1), (5, None, 8), (8, None, 8), (5, 9, 16)])
    def test_room_is_a_power_of_two(self, n, capacity, room):
        rows = Rows(X.reshape(-1, 3)[:n], LABELS.reshape(-1)[:n].astype(float), 1)
        seen = observe(rows, capacity)
        assert (seen.clients, seen.capacity, seen.rows.tolist()) == (1, room, [n])
        np.testing.assert_array_equal(seen.x[0, :n], rows.x)
        np.testing.assert_array_equal(seen.y[0, :n], rows.y)

    def test_padding_is_never_learned_from(self, double_precision):
        """The room made for rows changes no bit of what is learned from them."""
        rows = Rows(X.reshape(-1, 3)[:5], LABELS.reshape(-1)[:5].astype(float), 1)
        algorithm = pf.p_fedavg(0.1, batch=pf.Fixed(4), deploy="round")
        tight, roomy = (
            pf.run(pf.Problem(pf.losses.logistic(0.1), observe(rows, room, 2)), algorithm, rounds=4).theta
            for room in (5, 60)
        )
        np.testing.assert_array_equal(tight, roomy)

    def test_one_program_serves_all_numbers_of_rows_of_a_size(self):
        traces = []

        @jax.jit
        def mean(population):
            traces.append(1)
            mine = slice_client(population, 0)
            noise, weight = mine.quadrature(jnp.zeros(3), 8)
            return jnp.sum(weight[:, None] * jax.vmap(lambda u: mine.sample(u, None, None))(noise), axis=0)

        for n in (5, 6, 8):
            seen = observe(Rows(X.reshape(-1, 3)[:n], None, n))
            np.testing.assert_allclose(mean(jax.tree.map(jnp.asarray, seen)), seen.x[0, :n].mean(axis=0), rtol=1e-5)
        assert len(traces) == 1

    def test_classes(self):
        rows = Rows(np.ones((3, 1)), np.asarray([0.0, 2.0, 1.0]), 1)
        seen = observe(rows, classes=3)
        assert seen.y.dtype == np.int32 and seen.group_count == 3 and observe(rows).group_count is None
        for labels, classes in (([0.0, 0.5], 2), ([0.0, 2.0], 2), (None, 2)):
            odd = Rows(np.ones((2, 1)), None if labels is None else np.asarray(labels), 1)
            with pytest.raises(ValueError, match="whole"):
                observe(odd, classes=classes)

    def test_refused(self):
        with pytest.raises(ValueError, match="no rows of version 4"):
            observe(Rows(np.ones((0, 2)), None, 4))
        with pytest.raises(ValueError, match="5 rows do not fit into capacity=4"):
            observe(Rows(np.ones((5, 2)), None, 4), 4)
