"""Keeps other web sites out of Locust's web UI: a page that the user happens to visit could else start a load test.

Locust answers every origin (`Access-Control-Allow-Origin: *`) and takes posts from any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

_READING = ("GET", "HEAD")


def install(app: Any) -> None:
    """Refuse what another origin posts with 403, and let no other origin read an answer. `app` is a Flask app."""
    import flask

    def refuse() -> Any:
        request = flask.request
        if request.method in _READING or is_same_origin(request.headers, request.host):
            return None
        return flask.Response("refused: this came from another web site\n", 403, content_type="text/plain")

    def close(response: Any) -> Any:
        for name in [name for name in response.headers.keys() if name.lower().startswith("access-control-")]:  # noqa: SIM118
            del response.headers[name]
        return response

    app.before_request(refuse)
    # Flask calls these in reverse order: the first one has the last word, after the extension that adds the headers.
    app.after_request_funcs.setdefault(None, []).insert(0, close)


def is_same_origin(headers: Mapping[str, str], host: str) -> bool:
    """Tell whether a request came from a page of this very host, or from no page at all (a script, a command line).

    >>> is_same_origin({"Origin": "http://127.0.0.1:8089"}, "127.0.0.1:8089"), is_same_origin({}, "127.0.0.1:8089")
    (True, True)
    >>> is_same_origin({"Origin": "null"}, "127.0.0.1:8089")
    False
    >>> is_same_origin({"Origin": "https://front", "Sec-Fetch-Site": "same-origin"}, "behind-a-proxy:8089")
    True
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in {"same-origin", "none"}
    origin = headers.get("Origin")
    return origin is None or urlsplit(origin).netloc == host
