"""Verdicts compared with the truth: right, does not know, or wrong. A wrong one fails its test.

The table of all verdicts closes the run (`pytest_terminal_summary` in tests/conftest.py).
"""

from collections import Counter

import pytest


class Tally:
    """What one test saw: `tally("certify", said, truth)`, where `said` is None for "does not know"."""

    def __init__(self):
        self.counts = Counter()
        self.mistakes = []

    def __call__(self, verdict, said, truth, world=""):
        """Count one verdict; `world` describes the instance, so that a wrong answer can be made again."""
        answer = "does not know" if said is None else "right" if said == truth else "wrong"
        self.counts[verdict, answer] += 1
        if answer == "wrong":
            self.mistakes.append(f"{verdict}: said {said!r}, truth {truth!r}; {world}")


@pytest.fixture
def tally(request):
    """Counts verdicts; after the test a single wrong one fails it, by name."""
    seen = Tally()
    yield seen
    request.node.user_properties.append(("truth", [[*key, n] for key, n in sorted(seen.counts.items())]))
    assert not seen.mistakes, f"{len(seen.mistakes)} wrong verdicts, such as\n" + "\n".join(seen.mistakes[:5])
