"""Warnings and refusals that protect an answer: each has a code, which stands in the text and in `docs/messages.md`.

    warn("batch-exceeds-table", "Fixed(5000) draws ...")       a PerformativeWarning that ends in [batch-exceeds-table]
    raise ValueError(coded("diverging-iteration", "..."))      an error of any class, with the code at its end

A code is for what would otherwise be a wrong answer without a word: it can be looked up, searched in logs, and
silenced by `warnings.filterwarnings("ignore", message=r".*\\[batch-exceeds-table\\]")`. Plain checks of arguments
carry none.
"""

import warnings
from dataclasses import dataclass
from typing import Literal


class PerformativeWarning(UserWarning):
    """An answer that is given, but that does not mean what it seems to; the code in brackets says why."""


@dataclass(frozen=True)
class Message:
    """A line of the index: what kind it is, when it is given, and what to do about it."""

    kind: Literal["warning", "refusal"]
    when: str
    remedy: str


def coded(code: str, text: str) -> str:
    """The text with its code at the end; a code that the index lacks is a mistake of ours."""
    if code not in MESSAGES:
        raise KeyError(f"the message {code!r} is not in performative.messages.MESSAGES.")
    return f"{text} [{code}]"


def warn(code: str, text: str, stacklevel: int = 2) -> None:
    """Warn with a code; `stacklevel` counts from the caller, as in `warnings.warn`."""
    warnings.warn(coded(code, text), PerformativeWarning, stacklevel=stacklevel + 1)


MESSAGES: dict[str, Message] = {
    # Audit of logs
    # Points and retraining
    # Certificates, plans, scoreboards
    # Theory
    # Privacy, samplers
    # Methods
    # Tables, models, problems
    # Runs
    # Federation
}
