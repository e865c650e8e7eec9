"""What is wrong with a configuration file, in one line."""

from collections.abc import Iterator
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
def blame(key: str) -> Iterator[None]:
    """Complaints of a part's constructor, passed on with the key that they are about."""
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error), key) from error
