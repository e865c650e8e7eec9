"""Before a deployment: will retraining settle, where, and at what cost?"""

from performative.certify.certificate import Certificate
from performative.certify.certifying import certify

__all__ = ["Certificate", "certify"]
