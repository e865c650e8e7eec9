"""The page over HTTP: read-only, on this machine by default."""

import threading
from typing import Any

from performative.watch.following import Follower
from performative.watch.page import content, page

# The page loads nothing from elsewhere and cannot be embedded.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
NEEDED = 'a page needs Starlette and uvicorn: pip install "performative[watch]".'


def make_app(follower: Follower, title: str, every: float = 5.0) -> Any:
    """A Starlette application: / the page, /content its refreshed part, /report.json the data, /health.

    The report is computed once per state of the watch, however many requests arrive.
    """
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse
    from starlette.routing import Route

    kept: dict[str, Any] = {"batches": None}
    lock = threading.Lock()

    def facts() -> dict[str, Any]:
        with lock:
            if kept["batches"] != follower.watch.tally.batches:
                with follower.lock:
                    kept.update(batches=follower.watch.tally.batches, report=follower.watch.report().to_dict())
            found: dict[str, Any] = kept["report"]
            return found

    def whole(_: Request) -> HTMLResponse:
        return HTMLResponse(page(facts(), title, every), headers=_HEADERS)

    def renewed(_: Request) -> HTMLResponse:
        return HTMLResponse(content(facts()), headers=_HEADERS)

    def as_json(_: Request) -> JSONResponse:
        return JSONResponse(facts(), headers=_HEADERS)

    def health(_: Request) -> JSONResponse:
        return JSONResponse({"looks": follower.watch.tally.looks}, headers=_HEADERS)

    routes = [Route(path, answer) for path, answer in
              (("/", whole), ("/content", renewed), ("/report.json", as_json), ("/health", health))]  # fmt: skip
    return Starlette(routes=routes)


def serve(follower: Follower, host: str, port: int, every: float, title: str) -> None:
    """Follow in a separate thread and serve the page until interrupted."""
    try:
        import uvicorn
    except ImportError as error:
        raise ValueError(NEEDED) from error
    stop = threading.Event()
    thread = threading.Thread(target=follower.follow, args=(every, stop), daemon=True)
    thread.start()
    try:
        uvicorn.run(make_app(follower, title), host=host, port=port, log_level="warning", ws="none")
    finally:
        stop.set()
        thread.join(timeout=10)
        follower.save()
