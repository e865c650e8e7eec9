"""Fashion-MNIST and CIFAR-10."""

import zipfile
from pathlib import Path

import numpy as np

from performative.data.catalog import DATA_SETS, check_split
from performative.data.download import get
from performative.data.official import BATCH, RECORD, check_classes, check_records
from performative.data.places import (
    CIFAR_TEST,
    CIFAR_TRAIN,
    ChecksumError,
    NotHereError,
    Place,
    batch_file,
    read,
    refusing,
)
from performative.data.tables import Table
from performative.facts import cites

CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@cites("xiao2017fashion")
def fashion_mnist(split: str = "train", *, path: str | Path | None = None, download: bool = True) -> Table:
    """Articles of clothing: x uint8 [60000 + 10000, 28, 28], ten classes of equal size."""
    check_split("fashion_mnist", split)
    entry = DATA_SETS["fashion_mnist"]
    place = get("fashion_mnist", path, download)
    wanted = {"train": entry.files[:2], "test": entry.files[2:], "all": entry.files}[split]
    contents = [read(place, file) for file in wanted]
    # The header is a magic number and one length per axis, four bytes each.
    x = [np.frombuffer(content, np.uint8, offset=16).reshape(-1, 28, 28) for content in contents[::2]]
    y = [np.frombuffer(content, np.uint8, offset=8) for content in contents[1::2]]
    return _images("fashion_mnist", np.concatenate(x), np.concatenate(y), CLOTHES)


@cites("krizhevsky2009learning")
def cifar10(split: str = "train", *, path: str | Path | None = None, download: bool = True) -> Table:
    """Small color photographs: x uint8 [50000 + 10000, 32, 32, 3], ten classes of equal size.

    Uses the batches that are available, official binary files or .npz of differences; `complete` is False if some are
    missing. Batch 1 and the first 1,000 test images are verified by sha256, the rest by size, labels and class sizes.
    """
    check_split("cifar10", split)
    place = get("cifar10", path, download)
    train = [batch for batch in CIFAR_TRAIN if batch_file(place.folder, batch)] if split != "test" else []
    test = [batch for batch in CIFAR_TEST if batch_file(place.folder, batch)][:1] if split != "train" else []
    if (split != "test" and not train) or (split != "train" and not test):
        raise NotHereError(
            f"cifar10: {place.folder} contains no batch for split {split!r}; expected data_batch_1.bin .. "
            "data_batch_5.bin for training and test_batch.bin for testing."
        )
    records = np.concatenate([_read_batch(place, batch) for batch in (*train, *test)])
    whole_train, whole_test = train == list(CIFAR_TRAIN), test == ["test_batch"]
    if whole_train:
        check_classes(records[: 5 * BATCH, 0], 5_000, f"{place.folder}, training batches")
    if whole_test:
        check_classes(records[-BATCH:, 0], 1_000, f"{place.folder}, test batch")
    pixels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    complete = (whole_train or split == "test") and (whole_test or split == "train")
    return _images("cifar10", np.ascontiguousarray(pixels), records[:, 0], THINGS, complete)


def undo_differences(delta: np.ndarray) -> np.ndarray:
    """Images [n, 3, 32, 32] from differences modulo 256: along rows, along columns, and of red and blue to green."""
    images = delta.cumsum(axis=2, dtype=np.uint8).cumsum(axis=3, dtype=np.uint8)
    images[:, 0] += images[:, 1]
    images[:, 2] += images[:, 1]
    return images


def _read_batch(place: Place, batch: str) -> np.ndarray:
    """Records of one batch: uint8 [n, 3073]."""
    stored = batch_file(place.folder, batch)
    if stored is None:
        raise NotHereError(f"{place.folder / batch} has disappeared; load the data set again.")
    with refusing(place, stored):
        if stored.suffix == ".bin":
            content = np.fromfile(stored, np.uint8)
            if content.size != BATCH * RECORD:
                raise ChecksumError(f"{stored}: expected {BATCH * RECORD} bytes; got {content.size}.")
            records = content.reshape(BATCH, RECORD)
        else:
            records = _from_differences(stored)
        check_records(records, batch, str(stored))
    return records


def _from_differences(stored: Path) -> np.ndarray:
    try:
        with np.load(stored, allow_pickle=False) as arrays:
            y, delta = arrays["y"], arrays["delta"]
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise ChecksumError(f"{stored}: expected an .npz with y and delta; got {error}.") from None
    if delta.shape != (len(y), 3, 32, 32) or delta.dtype != np.uint8 or y.dtype != np.uint8:
        raise ChecksumError(f"{stored}: expected delta uint8 [n, 3, 32, 32]; got {delta.dtype} {delta.shape}.")
    return np.column_stack([y, undo_differences(delta).reshape(len(y), -1)])


def _images(name: str, x: np.ndarray, y: np.ndarray, classes: tuple[str, ...], complete: bool = True) -> Table:
    entry = DATA_SETS[name]
    return Table(name, x, y.astype(np.int64), (), classes, entry.source, entry.license, complete)
