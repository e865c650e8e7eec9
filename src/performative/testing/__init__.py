"""The public contract check: does a custom part do what the engine relies on?"""

from performative.testing.check import check_part

__all__ = ["check_part"]
