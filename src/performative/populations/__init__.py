"""How clients' data react to a deployed model."""

from performative.populations import shares, shifts
from performative.populations.base import AbstractPopulation
from performative.populations.classes import Classes
from performative.populations.database import Database
from performative.populations.drifting import Drifting
from performative.populations.gaussian import Gaussian
from performative.populations.market import Market
from performative.populations.mixture import Mixture
from performative.populations.outliers import Outliers
from performative.populations.pools import Pools, Sluggish
from performative.populations.pricing import Pricing
from performative.populations.regression import Regression
from performative.populations.reweighted import Reweighted
from performative.populations.static import Static
from performative.populations.strategic import Strategic
from performative.populations.wrappers import Contaminated

__all__ = [
    "AbstractPopulation",
    "Classes",
    "Contaminated",
    "Database",
    "Drifting",
    "Gaussian",
    "Market",
    "Mixture",
    "Outliers",
    "Pools",
    "Pricing",
    "Regression",
    "Reweighted",
    "Sluggish",
    "Static",
    "Strategic",
    "shares",
    "shifts",
]
