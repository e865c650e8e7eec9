"""Where a deployed model is published: a function, a file or an HTTP endpoint.

All publishers follow the same order: a version is published once, and never after a later one. Publishing a model
again is a no-op, so a client that was killed can simply retry.
"""

import dataclasses
import http.client
import ipaddress
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from performative._base.files import write_whole
from performative.live.sources.deployment import Deployed, VersionError
from performative.live.telling import Sayable

# Status codes of a service that is busy or restarting: a retry may help.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class PublishError(Sayable, RuntimeError):
    """The model was not published."""

    sentence = "the model could not be published"


@runtime_checkable
class Publisher(Protocol):
    """Publish a model."""

    def publish(self, deployed: Deployed) -> None:
        """Return once the model is published; raise if it is not."""


class Record:
    """The last version published, in memory or, given a path, in a file that outlives the process."""

    def __init__(self, path: str | Path | None = None):
        self.path = None if path is None else Path(path)
        self._last: tuple[int, str] | None = None

    def is_new(self, deployed: Deployed) -> bool:
        """Whether the model is still to be published; raises if the version decreases or is taken."""
        last = self._last if self.path is None else _read(self.path)
        if last is None or deployed.version > last[0]:
            return True
        if deployed.version < last[0]:
            raise VersionError(
                f"version {deployed.version} comes before version {last[0]}, which is published. To return to an "
                f"earlier model, deploy it under a new version, {last[0] + 1} or later."
            )
        if deployed.fingerprint != last[1]:
            raise VersionError(
                f"version {last[0]} is published with other parameters. Rows stamped {last[0]} would mix two models: "
                f"deploy this one under a new version, {last[0] + 1} or later."
            )
        return False

    def note(self, deployed: Deployed) -> None:
        """Record that the model has been published."""
        self._last = (deployed.version, deployed.fingerprint)
        if self.path is not None:
            _write(self.path, json.dumps(dict(zip(("version", "fingerprint"), self._last, strict=True))).encode())


def _read(path: Path) -> tuple[int, str] | None:
    """Version and fingerprint in a record or a model file, None if there is no file."""
    try:
        content = json.loads(path.read_bytes())
        return int(content["version"]), str(content["fingerprint"])
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise VersionError(
            f"{path} does not record the last published version; it is not a file of this library. Move it away, or "
            "pass another path."
        ) from error


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


@dataclasses.dataclass(frozen=True)
class Callback:
    """Pass the model to your own function.

    Attributes:
        function: function(deployed); the model counts as published once it returns
        record: a file that keeps the last version across processes; None for memory only
    """

    function: Callable[[Deployed], Any]
    record: str | Path | None = None
    _published: Record = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_published", Record(self.record))

    def publish(self, deployed: Deployed) -> None:
        if self._published.is_new(deployed):
            self.function(deployed)
            self._published.note(deployed)


@dataclasses.dataclass(frozen=True)
class ModelFile:
    """Write the model as JSON (see `Deployed.to_json`). A reader finds the old model or the new one, never half of one.

    Earlier versions are not kept here: the server keeps them. The file itself records what was published last.
    """

    path: str | Path

    def publish(self, deployed: Deployed) -> None:
        if Record(self.path).is_new(deployed):
            _write(Path(self.path), deployed.to_json())


class _Refused(urllib.request.HTTPRedirectHandler):
    """Do not follow redirects: the model would be dropped, and the token sent to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


@dataclasses.dataclass(frozen=True, repr=False)
class Endpoint:
    """POST the model as JSON (see `Deployed.to_json`) to your own service; any 2xx answer means success.

    Attributes:
        url: http or https; the certificate must be valid (SSL_CERT_FILE names your own authority)
        token: sent as `Authorization: Bearer ...`, over plain http only to this machine; never in an error message
        timeout: seconds that an attempt waits for the service
        retries: retries if it is unreachable, busy or failing, after pause, 2 pause, 4 pause, ... seconds
        record: a file that keeps the last version across processes; None for memory only

    An answer can be lost in transit, so the service may see a version twice, with the same `Idempotency-Key` header.
    """

    url: str
    token: str | None = None
    timeout: float = 10.0
    retries: int = 3
    pause: float = 0.5
    record: str | Path | None = None
    _published: Record = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"Endpoint: url must begin with http:// or https:// and a host; got {parts.scheme!r}.")
        if parts.username is not None or parts.password is not None:
            raise ValueError("Endpoint: url must not contain a user or a password; use token=.")
        if not all("!" <= c <= "~" for c in self.url):
            raise ValueError(f"Endpoint: url must be printable ASCII without spaces; percent-encode {self.address}.")
        if self.token is not None and not (self.token and all("!" <= c <= "~" for c in self.token)):
            raise ValueError("Endpoint: token must be printable ASCII without spaces or line ends.")
        if self.token is not None and parts.scheme == "http" and not _is_here(parts.hostname):
            raise ValueError(f"Endpoint: {self.address} is plain http, which shows the token to everyone; use https.")
        for name, least in (("timeout", 1e-3), ("pause", 0.0), ("retries", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not least <= value < math.inf:
                raise ValueError(f"Endpoint: {name} must be a finite number >= {least}; got {value!r}.")
        object.__setattr__(self, "_published", Record(self.record))

    def __repr__(self) -> str:
        return f"Endpoint({self.address!r}, timeout={self.timeout}, retries={self.retries})"

    @property
    def address(self) -> str:
        """The url without its query, which may contain a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def publish(self, deployed: Deployed) -> None:
        if self._published.is_new(deployed):
            self._post(deployed)
            self._published.note(deployed)

    def _post(self, deployed: Deployed) -> None:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": f"{deployed.version}-{deployed.fingerprint}",
        }
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        # A proxy set in the environment would see a model and a token meant only for this machine.
        here = _is_here(urlsplit(self.url).hostname or "")
        ways = (_Refused, urllib.request.ProxyHandler({})) if here else (_Refused,)
        opener, content = urllib.request.build_opener(*ways), deployed.to_json()
        for attempt in range(self.retries + 1):
            request = urllib.request.Request(self.url, content, headers, method="POST")
            try:
                with opener.open(request, timeout=self.timeout):
                    return
            except urllib.error.HTTPError as error:
                error.close()
                said = f"{error.code} {error.reason}"
                if error.code not in _PASSING:
                    hint = " Redirects are not followed; pass the final url." if 300 <= error.code < 400 else ""
                    raise self._lost(deployed, said, attempt, hint) from error
            except (OSError, http.client.HTTPException) as error:
                said = str(getattr(error, "reason", error)) or type(error).__name__
            if attempt < self.retries:
                time.sleep(self.pause * 2**attempt)
        raise self._lost(deployed, said, self.retries, " Is the service up? Publishing again is harmless.")

    def _lost(self, deployed: Deployed, said: str, attempt: int, hint: str) -> PublishError:
        return PublishError(
            f"version {deployed.version} was not published: {self.address} answered {said!r} (attempt {attempt + 1} of "
            f"{self.retries + 1}).{hint}"
        )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
