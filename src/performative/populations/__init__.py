"""How clients' data react to a deployed model."""

from performative.populations.base import AbstractPopulation
from performative.populations.gaussian import Gaussian
from performative.populations.reweighted import Reweighted
from performative.populations.strategic import Strategic
from performative.populations.wrappers import Contaminated, Sluggish

__all__ = ["AbstractPopulation", "Contaminated", "Gaussian", "Reweighted", "Sluggish", "Strategic"]
