"""Causal effects, not only correlations: what a decision or a deployment does to outcomes, by four designs.

A randomized share, a threshold, deployment breaks with controls, overlapping policies: of those that the logs identify,
`effect` uses the one with the weakest assumptions, states them, and refuses if nothing is identified.
"""

from performative.audit.causes.cause import Cause
from performative.audit.causes.pick import causes_of, effect
from performative.audit.causes.policies import PolicyValue, policy_values

__all__ = ["Cause", "PolicyValue", "causes_of", "effect", "policy_values"]
