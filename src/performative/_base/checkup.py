"""One line of a checkup: what was checked, what was found, what to do about it."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Attributes:
        name: what was checked
        found: what was found
        remedy: what to do, "" if nothing is wrong
    """

    name: str
    found: str
    remedy: str = ""

    @property
    def wrong(self) -> bool:
        return bool(self.remedy)
