"""Adult, also called Census Income."""

from pathlib import Path

import numpy as np

from performative.data.catalog import DATA_SETS, check_split
from performative.data.download import get
from performative.data.places import read
from performative.data.tables import Table
from performative.facts import cites

FEATURES = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
)  # fmt: skip
NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")


@cites("becker1996adult")
def adult(
    split: str = "train", *, drop_missing: bool = False, path: str | Path | None = None, download: bool = True
) -> Table:
    """People of the 1994 census, and whether they earn more than 50,000 dollars a year: 32,561 + 16,281 rows x 14.

    Categories stay strings, and a missing one is "?"; `drop_missing` drops rows that have one (30,162 + 15,060 remain).
    `encode` converts them to numbers. `fnlwgt` is the weight of a row in the census, not a property of the person.
    """
    check_split("adult", split)
    entry = DATA_SETS["adult"]
    place = get("adult", path, download)
    wanted = {"train": entry.files[:1], "test": entry.files[1:], "all": entry.files}[split]
    rows = [row for file in wanted for row in _rows(read(place, file))]
    if drop_missing:
        rows = [row for row in rows if "?" not in row]
    words = np.array(rows, dtype=object)
    x = words[:, :-1]
    for index, name in enumerate(FEATURES):
        if name in NUMBERS:
            x[:, index] = x[:, index].astype(np.float64)
    # The labels of the test split end with a full stop.
    y = np.array([label.rstrip(".") == ">50K" for label in words[:, -1]], dtype=np.int64)
    return Table("adult", x, y, FEATURES, ("<=50K", ">50K"), entry.source, entry.license)


def _rows(content: bytes) -> list[list[str]]:
    lines = content.decode("ascii").splitlines()
    return [line.split(", ") for line in lines if line and not line.startswith("|")]
