"""Send alarms to another service: one JSON object by POST; failures never stop the watch."""

import dataclasses
import json
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from performative.findings import plain


@dataclasses.dataclass(frozen=True)
class Webhook:
    """Where alarms go. Each is sent until it is accepted (a status of 200 to 299), once per id.

    Args:
        timeout: seconds per try; tries, pause: number of tries per call, and the seconds between two tries
    """

    url: str
    timeout: float = 5.0
    tries: int = 3
    pause: float = 1.0

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).netloc:
            raise ValueError(f"webhook: url must begin with http:// or https://; got {self.url!r}.")

    def tell(self, alarm: dict[str, Any]) -> bool:
        """Send an alarm; returns whether it was accepted. Errors of the receiver are not raised."""
        facts = {name: value for name, value in alarm.items() if name != "told"}
        content = json.dumps({"alarm": plain(facts)}, allow_nan=False).encode()
        for attempt in range(self.tries):
            request = urllib.request.Request(
                self.url, content, {"Content-Type": "application/json", "Idempotency-Key": str(alarm["id"])}
            )
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                    if 200 <= answer.status < 300:
                        return True
            except (OSError, ValueError, urllib.error.URLError):
                pass
            if attempt + 1 < self.tries:
                time.sleep(self.pause)
        return False
