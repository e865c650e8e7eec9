"""One-line errors for configuration files."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class ConfigError(ValueError):
    """`file: key: rule; value received`."""

    def __init__(self, message: str, key: str = "", file: str | Path = ""):
        self.message, self.key, self.file = message, key, str(file)
        super().__init__(": ".join(part for part in (self.file, self.key, message) if part))


def shown(value: Any) -> str:
    """A value as quoted in an error message, truncated if long."""
    if isinstance(value, dict):
        return "a table with the keys " + ", ".join(value) if value else "an empty table"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextmanager
def blame(
    key: str, names: Collection[str] = (), kinds: tuple[type[Exception], ...] = (ValueError, TypeError)
) -> Iterator[None]:
    """Re-raise errors of the block as ConfigError with the key that caused them.

    `names` are the keywords of the call: if the error text starts with one of them, the key points to it.
    """
    try:
        yield
    except ConfigError:
        raise
    except kinds as error:
        # Error texts read "k must ...", "Owner: k must ..." or "Owner(k=0) needs ...".
        opening = re.match(r"(?:\w+: |\w+\()?(\w+)", str(error))
        name = opening[1] if opening else ""
        raise ConfigError(str(error), f"{key}.{name}" if name in names else key) from error
