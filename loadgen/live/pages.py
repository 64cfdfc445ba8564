"""The page at `/scaling` in Locust's web UI, and the tab, table and links that lead there."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from loadgen.live import same_origin
from loadgen.live.tables import LOAD_HEAD, PHASE_HEAD, UNIT_COLUMNS, load_rows, phase_rows, unit_rows
from loadgen.live.view import LiveView

KEY: Final = "scaling"
_FOLDER: Final = Path(__file__).with_name("static")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_TYPES: Final = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_TYPES_JS: Final = ("axis.js", "load.js", "waterfall.js")


def install(web_ui: Any, view: LiveView) -> None:
    """Add the page to a Locust web UI, under its base path and behind its login, and refuse cross-origin posts."""
    import flask

    app = web_ui.app
    base = app.blueprints["locust"].url_prefix or ""
    blueprint = flask.Blueprint(KEY, __name__, url_prefix=base)

    def route(rule: str, name: str) -> Callable[[Callable[..., Any]], None]:
        def add(function: Callable[..., Any]) -> None:
            blueprint.add_url_rule(rule, name, web_ui.auth_required_if_enabled(function))

        return add

    @route("/scaling", "page")
    def page() -> Any:
        return _file("page.html")

    @route("/scaling/<name>", "file")
    def file(name: str) -> Any:
        return _file(name) if name in _TYPES or name in _TYPES_JS else flask.abort(404)

    @route("/scaling/data", "data")
    def data() -> Any:
        span = "recent" if flask.request.args.get("span") == "recent" else "whole"
        document = view.document(flask.request.args.get("since", "")[:100], span)  # type: ignore[arg-type]
        return _answer(msgspec.json.encode(document), "application/json")

    @route("/scaling/load.csv", "load_csv")
    def load_csv() -> Any:
        return _csv("load", LOAD_HEAD, load_rows(*view.load()))

    @route("/scaling/phases.csv", "phases_csv")
    def phases_csv() -> Any:
        return _csv("phases", PHASE_HEAD, phase_rows(*view.scaling()))

    app.register_blueprint(blueprint)
    _extend_locust(web_ui, view, base)
    same_origin.install(app)


def _extend_locust(web_ui: Any, view: LiveView, base: str) -> None:
    import flask

    columns = [{"key": key, "title": title} for key, title in UNIT_COLUMNS.items()]
    web_ui.template_args |= {
        "extended_tabs": [{"title": "Scaling", "key": KEY}],
        "extended_tables": [{"key": KEY, "structure": columns}],
        "extended_csv_files": [
            {"href": "./scaling", "title": "Scaling: open the live page"},
            {"href": "./scaling/load.csv", "title": "Download scaling load CSV"},
            {"href": "./scaling/phases.csv", "title": "Download scaling phases CSV"},
        ],
    }

    @web_ui.app.after_request  # type: ignore[untyped-decorator]
    def extend(response: Any) -> Any:
        path = flask.request.path.removeprefix(base)
        if path == "/stats/requests" and response.is_json:
            table = {"key": KEY, "data": unit_rows(*view.scaling())}
            response.set_data(msgspec.json.encode({**response.json, "extended_stats": [table]}))
        elif path == "/" and response.mimetype == "text/html":
            # Locust's tabs hold tables and no links, so the way to the charts is laid beside its page.
            response.set_data(response.get_data(as_text=True).replace("</body>", _LINK + "</body>"))
        return response


_LINK: Final = (
    '<a href="./scaling" style="position:fixed;left:16px;bottom:16px;z-index:10;padding:8px 14px;'
    'border-radius:6px;background:#0b5cad;color:#fff;font:600 14px system-ui,sans-serif">Scaling, live</a>'
)


def _file(name: str) -> Any:
    return _answer((_FOLDER / name).read_bytes(), _TYPES.get(name, "text/javascript"))


def _csv(name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(head)
    writer.writerows([[_plain(cell) for cell in row] for row in rows])
    answer = _answer(text.getvalue().encode(), "text/csv")
    answer.headers["Content-Disposition"] = f'attachment; filename="ramptrace-{name}.csv"'
    return answer


def _plain(cell: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula, whatever a platform calls its machines."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _answer(content: bytes, kind: str) -> Any:
    import flask

    answer = flask.Response(content, content_type=f"{kind}; charset=utf-8")
    answer.headers["Content-Security-Policy"] = _POLICY
    answer.headers["X-Content-Type-Options"] = "nosniff"
    answer.headers["Referrer-Policy"] = "no-referrer"
    answer.headers["Cache-Control"] = "no-store"
    return answer
