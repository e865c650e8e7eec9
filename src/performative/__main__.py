"""`python -m performative` runs `performative`."""

from performative_command import main

main()
