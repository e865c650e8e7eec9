"""Parts hold every row once, and are unequal in the way that was asked for."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import colormaps
from matplotlib.colors import to_hex

from performative import partition
from performative.plotting import COLORS, plot_partition
from performative.populations import Static

FEW = settings(max_examples=60, deadline=None, derandomize=True)
SEEDS = st.integers(0, 10**6)
ALPHAS = st.floats(1e-3, 1e3)


def assert_all_rows_once(parts, rows, clients, least=1):
    assert len(parts) == clients
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(rows))
    for part in parts:
        assert part.dtype.kind == "i" and len(part) >= least
        assert np.all(np.diff(part) > 0)


@FEW
@given(st.integers(1, 60), st.integers(1, 60), SEEDS)
def test_iid_parts_are_as_large_as_each_other(clients, more, seed):
    rows = clients + more
    parts = partition.iid(rows, clients, seed)
    assert_all_rows_once(parts, rows, clients)
    assert np.ptp([len(part) for part in parts]) <= 1


@FEW
@given(st.integers(1, 12), ALPHAS, st.integers(0, 5), SEEDS)
def test_dirichlet_parts(clients, alpha, least, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, clients * least + rng.integers(1, 80))
    parts = partition.dirichlet(labels, clients, alpha, seed, least)
    assert_all_rows_once(parts, len(labels), clients, least)
    again = partition.dirichlet(labels, clients, alpha, seed, least)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@FEW
@given(st.integers(1, 12), ALPHAS, st.integers(0, 5), SEEDS)
def test_parts_by_quantity(clients, alpha, least, seed):
    rows = clients * least + 1 + seed % 80
    assert_all_rows_once(partition.by_quantity(rows, clients, alpha, seed, least), rows, clients, least)


@FEW
@given(st.integers(1, 15), st.integers(1, 7), st.integers(1, 7), SEEDS)
def test_parts_by_label_hold_so_many_labels(clients, kinds, each, seed):
    each = min(each, kinds)
    # Enough rows of each label for all that may hold it; labels are words, in no order.
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat([f"label {k}" for k in range(kinds)], clients + rng.integers(0, 5, kinds)))
    if clients * each < kinds:
        with pytest.raises(ValueError, match="cannot cover all"):
            partition.by_label(labels, clients, each, seed)
        return
    parts = partition.by_label(labels, clients, each, seed)
    assert_all_rows_once(parts, len(labels), clients)
    held = partition.counts_of(labels, parts)
    np.testing.assert_array_equal(np.sum(held > 0, axis=1), each)
    assert np.ptp(np.sum(held > 0, axis=0)) <= 1, "a label has more holders than another"
    for column in held.T:
        assert np.ptp(column[column > 0]) <= 1, "a label's rows are not split evenly"


def test_clients_share_labels_with_different_others():
    labels = np.repeat(np.arange(10), 30)
    hands = {tuple(np.flatnonzero(row)) for row in partition.counts_of(labels, partition.by_label(labels, 20, 2)) > 0}
    assert len(hands) > 10, "20 clients with 2 labels of 10 do not hold but a few pairs"


def test_shares_follow_the_dirichlet_law():
    # Var q = (1/N)(1 - 1/N)/(N alpha + 1) for one client's share of one label; each label is one draw.
    clients, kinds, each = 5, 2000, 400
    labels = np.repeat(np.arange(kinds), each)
    for alpha in (0.02, 0.5, 20.0):
        share = partition.counts_of(labels, partition.dirichlet(labels, clients, alpha)) / each
        squared = (share - 1 / clients) ** 2
        known = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
        # Cutting at whole rows moves a share by half a row or so.
        error = squared.mean(axis=0).std() / np.sqrt(kinds)
        assert abs(squared.mean() - known) < 5 * error + (1 / each) ** 2


def test_seeds_differ():
    labels = np.arange(200) % 4
    for make in (
        lambda seed: partition.iid(200, 5, seed),
        lambda seed: partition.dirichlet(labels, 5, 1.0, seed),
        lambda seed: partition.by_label(labels, 5, 2, seed),
        lambda seed: partition.by_quantity(200, 5, 1.0, seed),
    ):
        assert not all(np.array_equal(a, b) for a, b in zip(make(0), make(1), strict=True))


@pytest.mark.parametrize("row", [(), (3,), (2, 4)])
def test_tables_hold_each_clients_rows_and_then_padding(row):
    rng = np.random.default_rng(0)
    x, y = 1 + rng.random((30, *row)), np.arange(30) % 3 + 5
    parts = partition.dirichlet(y, clients=4, alpha=0.5, seed=1)
    rows, labels, count = partition.tables(x, y, parts)
    assert count.tolist() == [len(part) for part in parts] and len(set(count.tolist())) > 1
    assert rows.shape == (4, count.max(), *row) and labels.shape == (4, count.max())
    assert rows.dtype == x.dtype and labels.dtype == y.dtype
    for client, part in enumerate(parts):
        np.testing.assert_array_equal(rows[client, : count[client]], x[part])
        np.testing.assert_array_equal(labels[client, : count[client]], y[part])
        assert np.isnan(rows[client, count[client] :]).all() and np.all(labels[client, count[client] :] == -(2**31))
    assert Static(rows, labels, count).clients == 4


def test_tables_take_lists_frames_and_any_order():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    rows, labels, count = partition.tables(frame, frame["a"] > 1, [[2, 0], np.asarray([2])])
    np.testing.assert_array_equal(rows, [[[3.0], [1.0]], [[3.0], [np.nan]]])
    np.testing.assert_array_equal(labels, [[1, 0], [1, -(2**31)]])
    np.testing.assert_array_equal(count, [2, 1])


@pytest.mark.parametrize(
    ("given", "dtype", "padding"),
    [
        (np.float32, np.float32, np.nan),
        (np.uint8, np.uint8, 0),
        (np.int16, np.int16, 0),
        (np.int64, np.float64, np.nan),
        (np.uint32, np.float64, np.nan),
    ],
)
def test_padding_of_features_of_all_kinds(given, dtype, padding):
    rows, labels, _ = partition.tables(np.ones((3, 2), given), np.ones(3, np.uint8), [[0, 1], [2]])
    assert rows.dtype == dtype and labels.dtype == np.int32
    np.testing.assert_array_equal(rows[1, 1], np.full(2, padding, dtype))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: partition.tables(np.ones((3, 2)), np.ones(2), [[0]]), r"one row per person; got shapes \(3, 2\) and"),
        (lambda: partition.tables(np.ones(3), np.ones(3), []), "at least one client; got none"),
        (lambda: partition.tables(np.ones(3), np.ones(3), [[0], []]), r"parts\[1\] must contain one or more row"),
        (lambda: partition.tables(np.ones(3), np.ones(3), [[True]]), r"parts\[0\] must contain .*; got bool"),
        (lambda: partition.tables(np.ones(3), np.ones(3), [[0, 3]]), r"from 0 to 3, but the rows are 0\.\.2"),
        (lambda: partition.tables(np.ones(3), np.ones(3), [[-1]]), "from -1 to -1, but"),
        (lambda: partition.iid(3, 4), "iid: 3 rows are too few for 4 clients"),
        (lambda: partition.iid(3, 0), "iid: clients must be a whole number >= 1; got 0"),
        (lambda: partition.dirichlet(np.zeros(9), 3, 0.0), "dirichlet: alpha must be a number above 0; got 0"),
        (lambda: partition.dirichlet(np.zeros((9, 2)), 3, 1.0), "one label per row; got shape \\(9, 2\\)"),
        (lambda: partition.dirichlet([0.0, np.nan], 1, 1.0), "labels must be finite"),
        (lambda: partition.dirichlet(np.zeros(9), 3, 1.0, least=4), "9 rows are too few for 3 clients .* 4 each"),
        (lambda: partition.dirichlet(np.zeros(9), 3, 1.0, least=-1), "least must be a whole number of rows >= 0"),
        (lambda: partition.by_label(np.arange(6) % 3, 2, 4), "labels_each=4, but there are only 3 labels"),
        (lambda: partition.by_label(np.arange(6) % 3, 2, 1), "cannot cover all 3 labels; use labels_each >= 2"),
        (lambda: partition.by_label([0, 0, 0, 0, 1], 4, 1), "label 1 has 1 rows for 2 clients"),
        (lambda: partition.by_quantity(9, 3, np.inf), "by_quantity: alpha must be a number above 0"),
    ],
)
def test_what_cannot_be_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_the_picture_stacks_the_counts():
    labels = np.asarray(["cat", "dog", "dog", "cat", "owl", "dog"])
    ax = plot_partition(labels, [[0, 1], [2, 3, 4, 5]])
    np.testing.assert_array_equal(
        [[bar.get_height() for bar in bars] for bars in ax.containers], [[1, 1], [1, 2], [0, 1]]
    )
    np.testing.assert_array_equal([[bar.get_y() for bar in bars] for bars in ax.containers], [[0, 0], [1, 1], [2, 3]])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["owl", "dog", "cat"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("client", "rows")
    assert [to_hex(bars[0].get_facecolor()).upper() for bars in ax.containers] == list(COLORS[:3])


def test_many_labels_are_told_apart():
    looks = set()
    for bars in plot_partition(np.arange(21), [np.arange(21)]).containers:
        looks.add((to_hex(bars[0].get_facecolor()), bars[0].get_hatch()))
    assert len(looks) == 21
    ax = plot_partition(np.arange(100), [np.arange(50), np.arange(50, 100)])
    assert ax.get_legend() is None
    assert to_hex(ax.containers[99][1].get_facecolor()) == to_hex(colormaps["viridis"](1.0))
    scale = ax.figure.axes[1]
    assert scale.get_yticklabels()[-1].get_text() == "99"
