"""The works behind what was used, as BibTeX."""

from performative.papers.citations.citing import cite

__all__ = ["cite"]
