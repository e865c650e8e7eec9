"""What a client tells the server of a failure: the kind of error and a fixed sentence.

The text of an error may quote people's rows ("expected 5 columns, got 6: Ada, 12 Main Street, ..."), so it stays on the
client's own disk, in `client.log`; what travels holds nothing that data could have written.
"""

import contextlib
import logging
import os
import time
import traceback
from pathlib import Path

LOG = "client.log"
_logger = logging.getLogger("performative.live.client")
# A log that has grown so long begins anew; the one before is kept.
_LONGEST = 1 << 20
_WHERE = "the client's own log says more"


class Sayable(Exception):
    """An error whose `sentence` is fixed by this library and says nothing of the data."""

    sentence = ""


class RequestRefused(Sayable, ValueError):
    """A client will not answer this request. Its text is about the request alone, so it may travel."""

    def __init__(self, sentence: str):
        super().__init__(sentence)
        self.sentence = sentence


class TableFailed(Sayable, ValueError):
    """A client's table cannot be used. Its sentence is made of what the shared file says; `text` may quote rows."""

    def __init__(self, sentence: str, text: str):
        super().__init__(text)
        self.sentence = sentence


def tell_failure(error: BaseException) -> str:
    """What may leave the client of an error."""
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
    """All of an error, in the client's folder, for its owner alone."""
    path = Path(folder) / LOG
    _logger.warning("%s: %s", Path(folder).name, error)  # on the client's own screen, where it has one
    with contextlib.suppress(OSError):  # a disk that is full must not hide the error itself
        if path.exists() and path.stat().st_size > _LONGEST:
            os.replace(path, path.with_name(f"{LOG}.old"))
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            file.write(f"{stamp}\n{''.join(traceback.format_exception(error))}\n")
