"""What is wrong with a configuration file, in one line."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class ConfigError(ValueError):
    """`file: key: rule; what came`."""

    def __init__(self, message: str, key: str = "", file: str | Path = ""):
        self.message, self.key, self.file = message, key, str(file)
        super().__init__(": ".join(part for part in (self.file, self.key, message) if part))


def shown(value: Any) -> str:
    """A value as an error message quotes it, cut where it is long."""
    if isinstance(value, dict):
        return "a table with the keys " + ", ".join(value) if value else "an empty table"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextmanager
def blame(
    key: str, names: Collection[str] = (), kinds: tuple[type[Exception], ...] = (ValueError, TypeError)
) -> Iterator[None]:
    """Complaints of what is called, passed on with the key that they are about.

    `names` are the keywords of the call: where the complaint opens with one of them, the key points at it.
    """
    try:
        yield
    except ConfigError:
        raise
    except kinds as error:
        # Complaints read "k must ...", "Owner: k must ..." or "Owner(k=0) needs ...".
        opening = re.match(r"(?:\w+: |\w+\()?(\w+)", str(error))
        name = opening[1] if opening else ""
        raise ConfigError(str(error), f"{key}.{name}" if name in names else key) from error
