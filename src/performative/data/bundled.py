"""Data sets bundled with scikit-learn: always available, without a network."""

from typing import Any

import numpy as np

from performative.data.catalog import DATA_SETS
from performative.data.tables import Table


def digits() -> Table:
    """Handwritten digits of 8 x 8 pixels, 0 to 16: 1,797 x 64, ten classes."""
    return _bundled("digits")


def breast_cancer() -> Table:
    """Measurements of cell nuclei, malignant (0) or benign (1): 569 x 30."""
    return _bundled("breast_cancer")


def iris() -> Table:
    """Measurements of flowers of three species: 150 x 4."""
    return _bundled("iris")


def wine() -> Table:
    """Chemical analyses of wines of three growers: 178 x 13."""
    return _bundled("wine")


def diabetes() -> Table:
    """Progression of diabetes after one year, a quantity: 442 x 10, centered and scaled by scikit-learn."""
    return _bundled("diabetes")


def _bundled(name: str) -> Table:
    from sklearn import datasets

    entry = DATA_SETS[name]
    bunch: Any = getattr(datasets, f"load_{name}")()
    classes = tuple(str(value) for value in bunch.get("target_names", ()))
    y = np.asarray(bunch.target, np.int64 if classes else np.float64)
    features = tuple(str(feature) for feature in bunch.feature_names)
    return Table(name, np.asarray(bunch.data, np.float64), y, features, classes, entry.source, entry.license)
