"""`python -m performative` is `performative`."""

from performative.cli import main

main()
