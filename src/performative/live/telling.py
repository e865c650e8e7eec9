"""What a client tells the server about a failure: the kind of error and a fixed sentence.

The text of an error may quote people's rows ("expected 5 columns, got 6: Ada, 12 Main Street, ..."), so it stays on the
client's own disk, in `client.log`; what is sent contains nothing derived from data.
"""

import contextlib
import logging
import os
import time
import traceback
from pathlib import Path

LOG = "client.log"
_logger = logging.getLogger("performative.live.client")
# A log of this size is rotated; the previous one is kept.
_LONGEST = 1 << 20
_WHERE = "the client's own log has the details"


class Sayable(Exception):
    """An error whose `sentence` is fixed by this library and reveals nothing about the data."""

    sentence = ""


class RequestRefused(Sayable, ValueError):
    """A client will not answer this request. The text concerns only the request, so it may be sent."""

    def __init__(self, sentence: str):
        super().__init__(sentence)
        self.sentence = sentence


class TableFailed(Sayable, ValueError):
    """A client's table cannot be used. Its sentence uses only the shared file; `text` may quote rows."""

    def __init__(self, sentence: str, text: str):
        super().__init__(text)
        self.sentence = sentence


def tell_failure(error: BaseException) -> str:
    """The part of an error that may leave the client."""
    kind = type(error).__name__
    if isinstance(error, RequestRefused):
        return error.sentence
    if isinstance(error, TableFailed):
        return f"{error.sentence}; {_WHERE}."
    if isinstance(error, Sayable) and type(error).sentence:
        return f"{kind}: {type(error).sentence}; {_WHERE}."
    if isinstance(error, TimeoutError):
        return f"{kind}: there was no answer before the round's end; {_WHERE}."
    if isinstance(error, MemoryError):
        return f"{kind}: the client ran out of memory; {_WHERE}."
    return f"{kind if kind.isidentifier() else 'error'}: the client's program failed; {_WHERE}."


def log_failure(folder: str | os.PathLike[str], error: BaseException) -> None:
    """Write the full error to the client's folder, only for its owner."""
    path = Path(folder) / LOG
    _logger.warning("%s: %s", Path(folder).name, error)  # on the client's own terminal, if it has one
    with contextlib.suppress(OSError):  # a full disk must not hide the error itself
        if path.exists() and path.stat().st_size > _LONGEST:
            os.replace(path, path.with_name(f"{LOG}.old"))
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            file.write(f"{stamp}\n{''.join(traceback.format_exception(error))}\n")
