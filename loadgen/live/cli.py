"""The command `ui`: Locust with our locustfile, its web UI, and the live page."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import click

OPEN = "RAMPTRACE_OPEN"
"""Environment variable: set when the live page is to be opened in the user's browser."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("scenario", type=click.Path(dir_okay=False))
@click.option("--web-host", metavar="HOST", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--web-port", metavar="PORT", type=click.IntRange(1, 65535), default=8089, show_default=True, help="Port to use."
)
@click.option("--start", is_flag=True, help="Start the replay at once, not when its button is pressed.")
@click.option("--open/--no-open", "open_page", default=None, help="Open the page in a browser  [default: on a desktop]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object that names the page, then start.")
@click.argument("locust_options", nargs=-1, type=click.UNPROCESSED)
def ui(
    scenario: str,
    *,
    web_host: str,
    web_port: int,
    start: bool,
    open_page: bool | None,
    as_json: bool,
    locust_options: tuple[str, ...],
) -> None:
    """Replay a scenario with Locust's web UI; the live page is at /scaling.

    Further options are those of `locust -f` with our locustfile: --trace, --window, --condition, --run-dir and so on,
    and Locust's own, such as --web-login, --web-base-path, --tls-cert and --tls-key.

    \b
    ramptrace ui burst.toml
    ramptrace ui burst.toml --start --run-dir runs/monday
    """  # noqa: D301 - click wants the character, not its escape
    from traces.errors import BadInputError

    if scenario.startswith("-"):
        raise BadInputError(f"name the scenario file first, and {scenario} after it")
    from loadgen.scenario_file import load_scenario

    load_scenario(scenario)  # what is wrong with it is said before anything is started
    _refuse_taken(web_host, web_port)
    locustfile = Path(__file__).parents[1] / "locustfile.py"
    command = [sys.executable, "-P", "-m", "locust", "-f", str(locustfile), "--scenario", scenario]
    command += ["--web-host", web_host, "--web-port", str(web_port), *(["--autostart"] if start else [])]
    if _has_desktop() if open_page is None else open_page:
        os.environ[OPEN] = "1"
    if as_json:
        click.echo(json.dumps({"schema": 1, "url": address(locust_options, web_host, web_port)}))
    sys.stdout.flush()
    # In our place: signals and the exit code are then Locust's own.
    os.execv(sys.executable, [*command, *locust_options])  # noqa: S606 - a list that we build


def address(options: Sequence[str], host: str, port: int) -> str:
    """Return where the page will be: Locust's own options name the base path and the certificate.

    >>> address(["--web-base-path", "/load"], "127.0.0.1", 8089), address(["--tls-cert=c"], "::1", 1)
    ('http://127.0.0.1:8089/load/scaling', 'https://[::1]:1/scaling')
    """
    words = [word for option in options for word in option.split("=", 1)]
    base = words[words.index("--web-base-path") + 1] if "--web-base-path" in words[:-1] else ""
    return page_address(host, port, base=base, tls="--tls-cert" in words)


def page_address(host: str, port: int, *, base: str, tls: bool) -> str:
    """Return the live page's address."""
    name = f"[{host}]" if ":" in host else host or "localhost"
    return f"{'https' if tls else 'http'}://{name}:{port}{base.rstrip('/')}/scaling"


def _refuse_taken(host: str, port: int) -> None:
    """Raise `BadInputError` when nothing can listen there: Locust would only log it, and go on without a page."""
    from traces.errors import BadInputError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise BadInputError(f"{host}:{port}: cannot listen there ({why}); choose another --web-port") from error


def _has_desktop() -> bool:
    """Tell whether a browser would open in a window; a text browser would take the terminal away."""
    if not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
