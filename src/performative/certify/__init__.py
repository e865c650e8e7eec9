"""Before a deployment: will retraining settle, where, and what does settling there cost?"""

from performative.certify.certificate import Certificate
from performative.certify.certifying import certify

__all__ = ["Certificate", "certify"]
