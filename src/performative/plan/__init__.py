"""Before a run: how should E, K, the step, the batch and the noise be set?"""

from performative.plan.cost import Cost
from performative.plan.following import Retraining, Steps, Tracking
from performative.plan.outcome import Option, Plan
from performative.plan.planning import plan
from performative.plan.settings import Setting

__all__ = ["Cost", "Option", "Plan", "Retraining", "Setting", "Steps", "Tracking", "plan"]
