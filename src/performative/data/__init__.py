"""Real data sets: where they come from, and what they are checked against.

A loader looks into the folder given as `path` or named by PERFORMATIVE_DATA, then into the cache, and downloads last;
scikit-learn's own sets need none of this. What is read is checked by sha256 every time.
"""

from performative.data.bundled import breast_cancer, diabetes, digits, iris, wine
from performative.data.catalog import DATA_SETS, DataSet
from performative.data.census import adult
from performative.data.download import DownloadError, get
from performative.data.images import cifar10, fashion_mnist
from performative.data.lending import credit
from performative.data.places import ChecksumError, NotHereError, Place, cache_folder, find
from performative.data.tables import Table, encode

__all__ = [
    "DATA_SETS",
    "ChecksumError",
    "DataSet",
    "DownloadError",
    "NotHereError",
    "Place",
    "Table",
    "adult",
    "breast_cancer",
    "cache_folder",
    "cifar10",
    "credit",
    "diabetes",
    "digits",
    "encode",
    "fashion_mnist",
    "find",
    "get",
    "iris",
    "wine",
]
