"""What the loaders return, against the counts and checksums of the published files."""

import hashlib

import numpy as np
import pytest

from performative import data
from performative.data.images import undo_differences
from performative.data.lending import balance


def need(published, folder):
    if not (published / folder).is_dir():
        pytest.skip(f"{published} has no {folder}")
    return published


def test_credit_is_the_whole_table(published):
    table = data.credit(path=need(published, "give_me_some_credit"))
    assert table.x.shape == (150_000, 10) and table.x.dtype == np.float64
    assert table.y.sum() == 10_026 and set(table.y) == {0, 1}
    missing = dict(zip(table.features, np.isnan(table.x).sum(axis=0), strict=True))
    assert {name: n for name, n in missing.items() if n} == {"MonthlyIncome": 29_731, "NumberOfDependents": 3_924}
    assert table.x[0].tolist() == [0.766126609, 45, 2, 0.802982129, 9120, 13, 0, 6, 0, 2]
    kept = data.credit(path=published, drop_missing=True)
    assert len(kept) == 120_269 and kept.y.sum() == 8_357


def test_balanced_credit_is_the_published_one_bit_for_bit(published):
    file = need(published, "give_me_some_credit") / "give_me_some_credit" / "performative_balanced_18357.npz"
    if not file.is_file():
        pytest.skip(f"{file} does not exist")
    table = data.credit(balanced=True, path=published)
    full = data.credit(path=published)
    rows, _, _ = balance(full.x, full.y)
    with np.load(file, allow_pickle=False) as known:
        assert table.x.dtype == known["X_std"].dtype
        assert table.x.tobytes() == np.ascontiguousarray(known["X_std"]).tobytes()
        assert np.array_equal(table.y, known["y"])
        assert np.array_equal(rows + 1, known["row_id"])
        assert table.features == tuple(known["feature_names"])


def test_a_balanced_set_that_differs_is_refused(published, tmp_path):
    source = need(published, "give_me_some_credit") / "give_me_some_credit"
    (tmp_path / "cs-training.csv.gz").write_bytes((source / "cs-training.csv.gz").read_bytes())
    table = data.credit(balanced=True, path=tmp_path)
    rows, x, y = balance(*(lambda t: (t.x, t.y))(data.credit(path=tmp_path)))
    assert np.array_equal(x, table.x)
    x[7, 3] += 1e-3
    np.savez(tmp_path / "performative_balanced_18357.npz", row_id=rows + 1, y=y, X_std=x)
    with pytest.raises(data.ChecksumError, match="Remove this file"):
        data.credit(balanced=True, path=tmp_path)


@pytest.mark.parametrize(
    ("split", "rows", "high", "whole", "whole_high"),
    [
        ("train", 32_561, 7_841, 30_162, 7_508),
        ("test", 16_281, 3_846, 15_060, 3_700),
        ("all", 48_842, 11_687, 45_222, 11_208),
    ],
)
def test_adult_has_the_published_counts(published, split, rows, high, whole, whole_high):
    table = data.adult(split, path=need(published, "adult"))
    assert table.x.shape == (rows, 14) and table.y.sum() == high
    kept = data.adult(split, path=published, drop_missing=True)
    assert len(kept) == whole and kept.y.sum() == whole_high and not (kept.x == "?").any()


def test_adult_keeps_words_and_encodes_the_same_way_twice(published):
    train, test = (data.adult(split, path=need(published, "adult")) for split in ("train", "test"))
    assert train.x[0, :4].tolist() == [39.0, "State-gov", 77516.0, "Bachelors"]
    frame = train.frame()
    assert frame["age"].dtype == np.float64 and frame["sex"].unique().tolist() == ["Male", "Female"]
    encoded = data.encode(train)
    assert encoded.x.dtype == np.float64 and encoded.x.shape == (32_561, 108)
    assert encoded.x.tobytes() == data.encode(train).x.tobytes()
    numbers = [i for i, name in enumerate(encoded.features) if "=" not in name]
    assert len(numbers) == 6
    assert np.allclose(encoded.x[:, numbers].mean(axis=0), 0, atol=1e-12)
    assert np.allclose(encoded.x[:, numbers].std(axis=0), 1, atol=1e-12)
    # Eight columns of words, each with one 1.
    words = [i for i in range(108) if i not in numbers]
    assert (encoded.x[:, words].sum(axis=1) == 8).all() and set(np.unique(encoded.x[:, words])) == {0.0, 1.0}
    other = data.encode(test, like=train, without=["fnlwgt"])
    assert other.features == tuple(name for name in encoded.features if name != "fnlwgt")
    age = (test.x[:, 0].astype(float) - train.x[:, 0].astype(float).mean()) / train.x[:, 0].astype(float).std()
    assert np.array_equal(other.x[:, 0], age)


def test_encode_says_what_it_cannot_do(published):
    train, test = (data.adult(split, path=need(published, "adult")) for split in ("train", "test"))
    with pytest.raises(ValueError, match=r"'native-country' of table contains 'Holand-Netherlands'"):
        data.encode(train, like=test)
    with pytest.raises(ValueError, match="without names"):
        data.encode(train, without=["weight"])
    with pytest.raises(ValueError, match=r"'MonthlyIncome' is missing 29731 of 150000 values"):
        data.encode(data.credit(path=need(published, "give_me_some_credit")))


def test_fashion_mnist_is_the_official_one(published):
    train, test = (data.fashion_mnist(split, path=need(published, "fashion_mnist")) for split in ("train", "test"))
    assert train.x.shape == (60_000, 28, 28) and test.x.shape == (10_000, 28, 28) and train.x.dtype == np.uint8
    assert np.bincount(train.y).tolist() == [6_000] * 10 and np.bincount(test.y).tolist() == [1_000] * 10
    assert train.x.mean() == pytest.approx(72.940, abs=5e-4)
    assert train.classes[train.y[0]] == "Ankle boot"
    both = data.fashion_mnist("all", path=published)
    assert len(both) == 70_000 and np.array_equal(both.x[60_000:], test.x) and np.array_equal(both.y[:60_000], train.y)


def test_cifar10_differences_decode_to_the_official_records(published):
    train, test = (data.cifar10(split, path=need(published, "cifar10")) for split in ("train", "test"))
    if train.complete or test.complete:
        pytest.skip("this folder holds the whole set, not the part with differences")
    assert train.x.shape == (10_000, 32, 32, 3) and test.x.shape == (1_000, 32, 32, 3) and train.x.dtype == np.uint8
    assert np.bincount(train.y).tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    assert np.bincount(test.y).tolist() == [103, 89, 100, 103, 90, 86, 112, 102, 106, 109]
    # The official layout again, from what the loader returns.
    records = np.column_stack([train.y.astype(np.uint8), train.x.transpose(0, 3, 1, 2).reshape(10_000, -1)])
    known = "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"
    assert hashlib.sha256(records.tobytes()).hexdigest() == known
    both = data.cifar10("all", path=published)
    assert len(both) == 11_000 and not both.complete and "only a part" in repr(both)


def test_official_batches_of_cifar10_are_read(published, tmp_path):
    part = data.cifar10("train", path=need(published, "cifar10"))
    records = np.column_stack([part.y.astype(np.uint8), part.x.transpose(0, 3, 1, 2).reshape(10_000, -1)])
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    records.tofile(folder / "data_batch_1.bin")
    read = data.cifar10("train", path=tmp_path)
    assert np.array_equal(read.x, part.x) and np.array_equal(read.y, part.y) and not read.complete
    with pytest.raises(data.NotHereError, match="no batch for split 'test'"):
        data.cifar10("test", path=tmp_path)
    records[5, 100] ^= 1
    records.tofile(folder / "data_batch_1.bin")
    with pytest.raises(data.ChecksumError, match="expected the official records"):
        data.cifar10("train", path=tmp_path)
    assert (folder / "data_batch_1.bin").exists()
    records[:9].tofile(folder / "data_batch_1.bin")
    with pytest.raises(data.ChecksumError, match="expected 30730000 bytes; got 27657"):
        data.cifar10("train", path=tmp_path)


def test_differences_are_undone():
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
    delta = images.copy()
    delta[:, 0] -= images[:, 1]
    delta[:, 2] -= images[:, 1]
    delta = np.diff(delta, axis=3, prepend=np.uint8(0))
    delta = np.diff(delta, axis=2, prepend=np.uint8(0))
    assert np.array_equal(undo_differences(delta), images)


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "iris", "wine", "diabetes"])
def test_bundled_sets_need_no_network(name, bare):
    table = getattr(data, name)()
    entry = data.DATA_SETS[name]
    assert table.x.shape == entry.shape and len(table.features) == entry.shape[1]
    assert table.license and table.source and len(table.classes) == (0 if name == "diabetes" else len(set(table.y)))
    assert data.find(name).kind == "bundled" and not bare.exists()


def test_tables_are_checked_and_cut():
    table = data.iris()
    assert np.array_equal(table.take(table.y == 1).x, table.x[table.y == 1])
    with pytest.raises(ValueError, match="one row per sample"):
        data.Table("t", np.zeros((3, 1)), np.zeros(2), ("a",), (), "", "")
    with pytest.raises(ValueError, match="one column for each of 2"):
        data.Table("t", np.zeros((3, 1)), np.zeros(3), ("a", "b"), (), "", "")
    for load in (data.adult, data.fashion_mnist, data.cifar10):
        with pytest.raises(ValueError, match="split must be"):
            load("training", download=False)
