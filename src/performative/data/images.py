"""Fashion-MNIST and CIFAR-10."""

import hashlib
import struct
import zipfile
from pathlib import Path

import numpy as np

from performative.data.catalogue import DATA_SETS, DataSet, check_split
from performative.data.places import (
    CIFAR_TEST,
    CIFAR_TRAIN,
    ChecksumError,
    NotHereError,
    Place,
    batch_file,
    check,
    get,
    read,
    refusing,
)
from performative.data.tables import Table
from performative.facts import cites

CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# A record of CIFAR-10: a label, then planes of red, green and blue, row by row.
RECORD = 1 + 3 * 32 * 32
BATCH = 10_000
# Of the official records: the first so many of a batch, and their sha256. Of the other batches none is known here.
_KNOWN = {
    "data_batch_1": (10_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    "test_batch": (1_000, "8314c96d7cd65618193bab23acdd5d4c4af15bf6dd00a1781d55beedf3be1ef5"),
    "test_first_1000": (1_000, "8314c96d7cd65618193bab23acdd5d4c4af15bf6dd00a1781d55beedf3be1ef5"),
}


@cites("xiao2017fashion")
def fashion_mnist(split: str = "train", *, path: str | Path | None = None, download: bool = True) -> Table:
    """Articles of clothing: x uint8 [60000 + 10000, 28, 28], ten classes of equal size."""
    check_split("fashion_mnist", split)
    entry = DATA_SETS["fashion_mnist"]
    place = get("fashion_mnist", path, download)
    wanted = {"train": entry.files[:2], "test": entry.files[2:], "all": entry.files}[split]
    contents = [read(place, file) for file in wanted]
    # The header is a magic number and one length an axis, four bytes each.
    x = [np.frombuffer(content, np.uint8, offset=16).reshape(-1, 28, 28) for content in contents[::2]]
    y = [np.frombuffer(content, np.uint8, offset=8) for content in contents[1::2]]
    return _images("fashion_mnist", np.concatenate(x), np.concatenate(y), CLOTHES)


@cites("krizhevsky2009learning")
def cifar10(split: str = "train", *, path: str | Path | None = None, download: bool = True) -> Table:
    """Small colour photographs: x uint8 [50000 + 10000, 32, 32, 3], ten classes of equal size.

    Takes the batches that are there, official binary files or .npz of differences; `complete` is False where some are
    not. Batch 1 and the first 1,000 test images are checked by sha256, the rest by size, labels and class sizes.
    """
    check_split("cifar10", split)
    place = get("cifar10", path, download)
    train = [batch for batch in CIFAR_TRAIN if batch_file(place.folder, batch)] if split != "test" else []
    test = [batch for batch in CIFAR_TEST if batch_file(place.folder, batch)][:1] if split != "train" else []
    if (split != "test" and not train) or (split != "train" and not test):
        raise NotHereError(
            f"cifar10: {place.folder} holds no batch for split {split!r}; expected data_batch_1.bin .. "
            "data_batch_5.bin for training and test_batch.bin for testing."
        )
    records = np.concatenate([_read_batch(place, batch) for batch in (*train, *test)])
    whole_train, whole_test = train == list(CIFAR_TRAIN), test == ["test_batch"]
    if whole_train:
        _check_classes(records[: 5 * BATCH, 0], 5_000, f"{place.folder}, training batches")
    if whole_test:
        _check_classes(records[-BATCH:, 0], 1_000, f"{place.folder}, test batch")
    pixels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    complete = (whole_train or split == "test") and (whole_test or split == "train")
    return _images("cifar10", np.ascontiguousarray(pixels), records[:, 0], THINGS, complete)


def undo_differences(delta: np.ndarray) -> np.ndarray:
    """Images [n, 3, 32, 32] from differences modulo 256: along rows, along columns, and of red and blue to green."""
    images = delta.cumsum(axis=2, dtype=np.uint8).cumsum(axis=3, dtype=np.uint8)
    images[:, 0] += images[:, 1]
    images[:, 2] += images[:, 1]
    return images


def official_files(entry: DataSet, rows: np.ndarray, labels: np.ndarray) -> dict[str, bytes]:
    """Rows of pixels and their labels, training rows first, as the files of the official version; checked."""
    pixels, y = np.asarray(rows).astype(np.uint8), np.asarray(labels).astype(np.uint8)
    size = int(np.prod(entry.shape[1:]))
    if not np.array_equal(pixels, rows):
        raise ChecksumError(f"{entry.name}: expected whole numbers from 0 to 255; the pixels that came are not.")
    if pixels.shape != (entry.shape[0], size) or y.shape != (entry.shape[0],):
        raise ChecksumError(
            f"{entry.name}: expected {entry.shape[0]} rows of {size} pixels and a label each; "
            f"got shapes {pixels.shape} and {y.shape}."
        )
    contents: dict[str, bytes] = {}
    if entry.name == "fashion_mnist":
        train_x, train_y, test_x, test_y = (file.name for file in entry.files)
        for images, tags, span in ((train_x, train_y, slice(60_000)), (test_x, test_y, slice(60_000, None))):
            count = len(y[span])
            contents[images] = struct.pack(">4i", 0x803, count, 28, 28) + pixels[span].tobytes()
            contents[tags] = struct.pack(">2i", 0x801, count) + y[span].tobytes()
        for file in entry.files:
            check(contents[file.name], file, f"{entry.name} as it came")
        return contents
    records = np.column_stack([y, pixels])
    for index, batch in enumerate((*CIFAR_TRAIN, "test_batch")):
        part = records[index * BATCH : (index + 1) * BATCH]
        _check_records(part, batch, f"{entry.name} as it came, {batch}")
        contents[f"{batch}.bin"] = part.tobytes()
    _check_classes(y[: 5 * BATCH], 5_000, f"{entry.name} as it came, first 50,000 rows")
    _check_classes(y[5 * BATCH :], 1_000, f"{entry.name} as it came, last 10,000 rows")
    return contents


def _read_batch(place: Place, batch: str) -> np.ndarray:
    """Records of one batch: uint8 [n, 3073]."""
    stored = batch_file(place.folder, batch)
    if stored is None:
        raise NotHereError(f"{place.folder / batch} has gone; load the data set again.")
    with refusing(place, stored):
        if stored.suffix == ".bin":
            content = np.fromfile(stored, np.uint8)
            if content.size != BATCH * RECORD:
                raise ChecksumError(f"{stored}: expected {BATCH * RECORD} bytes; got {content.size}.")
            records = content.reshape(BATCH, RECORD)
        else:
            records = _from_differences(stored)
        _check_records(records, batch, str(stored))
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


def _check_records(records: np.ndarray, batch: str, where: str) -> None:
    if len(records) and records[:, 0].max() > 9:
        raise ChecksumError(f"{where}: expected labels 0 to 9; got {records[:, 0].max()}.")
    if batch in _KNOWN:
        count, expected = _KNOWN[batch]
        came = hashlib.sha256(records[:count].tobytes()).hexdigest()
        if came != expected:
            raise ChecksumError(
                f"{where}: expected the official records, sha256 {expected} of the first {count}; got {came}."
            )


def _check_classes(y: np.ndarray, each: int, where: str) -> None:
    sizes = np.bincount(y, minlength=10).tolist()
    if sizes != [each] * 10:
        raise ChecksumError(f"{where}: expected {each} images of each of ten classes; got {sizes}.")


def _images(name: str, x: np.ndarray, y: np.ndarray, classes: tuple[str, ...], complete: bool = True) -> Table:
    entry = DATA_SETS[name]
    return Table(name, x, y.astype(np.int64), (), classes, entry.source, entry.licence, complete)
