"""Real data sets: where they come from, and how they are verified.

A loader looks in the folder given by `path` or PERFORMATIVE_DATA, then in the cache, and otherwise downloads;
scikit-learn's own data sets need none of this. Files are verified by sha256 every time they are read.
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
