"""The files of the official version of an image data set: their layout, and their verification."""

import hashlib
import struct

import numpy as np

from performative.data.catalog import DataSet
from performative.data.places import CIFAR_TRAIN, ChecksumError, check

# A record of CIFAR-10: a label, then planes of red, green and blue, row by row.
RECORD = 1 + 3 * 32 * 32
BATCH = 10_000
# Number of first records of a batch, and their official sha256. None is known here for the other batches.
_KNOWN = {
    "data_batch_1": (10_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    "test_batch": (1_000, "8314c96d7cd65618193bab23acdd5d4c4af15bf6dd00a1781d55beedf3be1ef5"),
    "test_first_1000": (1_000, "8314c96d7cd65618193bab23acdd5d4c4af15bf6dd00a1781d55beedf3be1ef5"),
}


def official_files(entry: DataSet, rows: np.ndarray, labels: np.ndarray) -> dict[str, bytes]:
    """Convert rows of pixels and their labels, training rows first, to verified files of the official version."""
    pixels, y = np.asarray(rows).astype(np.uint8), np.asarray(labels).astype(np.uint8)
    size = int(np.prod(entry.shape[1:]))
    if not np.array_equal(pixels, rows):
        raise ChecksumError(f"{entry.name}: expected whole numbers from 0 to 255; the downloaded pixels are not.")
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
            check(contents[file.name], file, f"{entry.name} as downloaded")
        return contents
    records = np.column_stack([y, pixels])
    for index, batch in enumerate((*CIFAR_TRAIN, "test_batch")):
        part = records[index * BATCH : (index + 1) * BATCH]
        check_records(part, batch, f"{entry.name} as downloaded, {batch}")
        contents[f"{batch}.bin"] = part.tobytes()
    check_classes(y[: 5 * BATCH], 5_000, f"{entry.name} as downloaded, first 50,000 rows")
    check_classes(y[5 * BATCH :], 1_000, f"{entry.name} as downloaded, last 10,000 rows")
    return contents


def check_records(records: np.ndarray, batch: str, where: str) -> None:
    if len(records) and records[:, 0].max() > 9:
        raise ChecksumError(f"{where}: expected labels 0 to 9; got {records[:, 0].max()}.")
    if batch in _KNOWN:
        count, expected = _KNOWN[batch]
        came = hashlib.sha256(records[:count].tobytes()).hexdigest()
        if came != expected:
            raise ChecksumError(
                f"{where}: expected the official records, sha256 {expected} of the first {count}; got {came}."
            )


def check_classes(y: np.ndarray, each: int, where: str) -> None:
    sizes = np.bincount(y, minlength=10).tolist()
    if sizes != [each] * 10:
        raise ChecksumError(f"{where}: expected {each} images of each of ten classes; got {sizes}.")
