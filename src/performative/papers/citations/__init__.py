"""BibTeX for the works behind what you used."""

from performative.papers.citations.citing import cite

__all__ = ["cite"]
