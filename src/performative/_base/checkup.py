"""One line of a checkup: what was looked at, what was seen, what to do about it."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what was looked at
        found: what was seen
        remedy: what to do, "" if nothing is wrong
    """

    name: str
    found: str
    remedy: str = ""

    @property
    def wrong(self) -> bool:
        return bool(self.remedy)
