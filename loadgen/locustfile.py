"""The replay as a locustfile: `locust -f "$(python -c 'import loadgen.locustfile as m; print(m.__file__)')"`.

Works headless (`--headless --trace FILE --target URL`) and with the web UI, whose start form shows the same options.
The exit code is the run's verdict, as with `ramptrace replay`: a failed request is a result, not an error.
"""

from __future__ import annotations

import logging
import os
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
from locust import events
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadgen import web_login, web_tls
from loadgen.crew import Crew
from loadgen.filing import refuse_remote
from loadgen.host import ReplayHost, ReplayUser
from loadgen.live import pages
from loadgen.live.cli import OPEN, page_address
from loadgen.live.view import LiveView
from loadgen.local import LocalSession
from loadgen.master import MasterSession
from loadgen.options import resolve_scenario
from loadgen.recorder import RequestRow
from loadgen.scenario_file import load_scenario
from loadgen.session import ReplaySession
from loadgen.worker import WorkerHost
from traces.errors import RamptraceError

__all__ = ["ReplayUser"]

logger = logging.getLogger("ramptrace")

_LISTENS_AFTER_S = 1.0
_TEXT_OPTIONS = {
    "scenario": "Scenario file (TOML); the options below win over it",
    "trace": "Trace file, or corpus:NAME",
    "format": "Trace format, where it cannot be told from the content",
    "window": "Part of the trace, such as 0s..180s",
    "kind": "Kind of endpoint: openai, completions, tgi, triton, http, sagemaker, or an installed one",
    "model": "Model to ask for",
    "endpoint-name": "SageMaker endpoint",
    "region": "AWS region",
    "emulator": "Address of the emulator whose clock is to be used",
    "duration": "Send what arrives before this time, such as 90s or 12h",
    "warm-up": "What is due this early counts for no latency and no verdict",
    "abort-on": "End the run when a rule holds, such as p99>30s (see `ramptrace replay --help`); several with commas",
    "abort-grace": "How long such a rule has to hold; 30s without",
    "condition": "What is varied, for a comparison",
    "run-dir": "Directory of the run; the form's second run needs another one",
}


_OTHER_OPTIONS = ("max_in_flight", "seed", "loop", "max_requests", "max_rate", "max_cost", "record_chunks")


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _add_options(parser: Any) -> None:
    group = parser.add_argument_group("ramptrace", "What to replay, and where to send it")

    def add(name: str, **more: Any) -> None:
        # A group's arguments are not in the start form unless they say so.
        group.add_argument(name, **more).include_in_web_ui = True

    for name, text in _TEXT_OPTIONS.items():
        add(f"--{name}", default="", help=text, env_var=f"RAMPTRACE_{name.upper().replace('-', '_')}")
    # In the start form this is Locust's own field "Host". (Only the parser itself knows `include_in_web_ui`.)
    parser.add_argument(
        "--target", default="", help="Address of the server (the same as --host)", include_in_web_ui=False
    )
    add("--max-in-flight", type=int, default=0, help="Cap on requests in flight; 0 is no cap")
    add("--loop", action="store_true", help="Repeat the trace until the duration, or until stopped")
    add("--max-requests", type=int, default=0, help="Refuse a plan with more requests; 0 is no limit")
    add("--max-rate", type=float, default=0.0, help="Refuse a plan with more in any second; 0: no limit")
    add(
        "--max-cost",
        type=float,
        default=0.0,
        help="Refuse a plan that costs more (see [prices]); 0: no limit",
    )
    add("--record-chunks", action="store_true", help="Keep the instant of every chunk (chunk_us)")
    add("--no-stream", action="store_true", help="Ask for whole answers instead of streams")
    add("--no-collect", action="store_true", help="Collect no scaling events meanwhile")
    add("--yes", action="store_true", help="Send much to another machine without being asked")
    add("--seed", type=int, default=0, help="Seed of the prompt texts")
    # Locust's page has no login unless asked for one, so it is not shown to the network unless asked to be.
    # Nor do its masters: anyone who can reach their port can read the plan, and take part in it.
    parser.set_defaults(web_host="127.0.0.1", master_bind_host="127.0.0.1")


@events.init.add_listener  # type: ignore[untyped-decorator]
def _attach(environment: Environment, runner: Any, **_: Any) -> None:
    options = environment.parsed_options
    if isinstance(runner, WorkerRunner):
        own = {"trace": options.trace or None, "target": options.target or None}
        WorkerHost(environment, run_path=_path(options.run_dir), **own)
        return
    if environment.web_ui is not None:
        _guard(environment.web_ui, options)
    if options.tags or options.exclude_tags:
        logger.warning("tags choose among Locust's tasks; a trace has none, so all of it is replayed")
        # or Locust would take the one task away, and warn of a user that has none
        ReplayUser.idle.locust_tag_set = set(options.tags or ()) - set(options.exclude_tags or ())
    environment.host = environment.host or options.target or _scenario_target(options.scenario)
    # Imports have held up the loop for seconds: a timer that is set now, `--run-time`, would count from before them.
    gevent.get_hub().loop.update_now()

    crew = Crew(environment) if isinstance(runner, MasterRunner) else None

    def make_session(on_request: Callable[[RequestRow], None]) -> ReplaySession:
        return _session(environment, on_request, crew)

    def report(host: ReplayHost) -> None:
        if isinstance(host.error, RamptraceError):
            logger.error("%s", host.error)
        elif host.error is not None:
            logger.error("the replay failed", exc_info=host.error)
        elif host.summary is not None:
            verdict = host.summary["verdict"]
            logger.info("%s: %s %s", host.summary["run"], verdict["status"], "; ".join(verdict["reasons"]))

    host = ReplayHost(environment, make_session, on_end=report)
    if environment.web_ui is not None:
        pages.install(environment.web_ui, LiveView(host))
        page = environment.web_ui
        base = page.app.blueprints["locust"].url_prefix or ""
        address = page_address(page.host, page.port, base=base, tls=bool(page.tls_cert))
        logger.info("live page: %s", address)
        if os.environ.pop(OPEN, None):
            gevent.spawn_later(_LISTENS_AFTER_S, gevent.get_hub().threadpool.apply, webbrowser.open, (address,))


def _guard(web_ui: Any, options: Any) -> None:
    """Set up the page's login and look at its certificate; what cannot be done ends the program."""
    try:
        web_tls.check(options.tls_cert, options.tls_key)
        if options.web_login:
            web_login.install(web_ui)
    except RamptraceError as error:
        logger.error("%s", error)
        raise SystemExit(error.exit_code) from None


def _session(environment: Environment, on_request: Callable[[RequestRow], None], crew: Crew | None) -> ReplaySession:
    options = environment.parsed_options
    given = {name.replace("-", "_"): getattr(options, name.replace("-", "_")) or None for name in _TEXT_OPTIONS}
    path, run_dir = given.pop("scenario"), given.pop("run_dir")
    if run_dir is not None:
        refuse_remote(run_dir)
    given["target"] = environment.host or None
    given["abort_on"] = given["abort_on"].split(",") if given["abort_on"] else None
    given |= {name: getattr(options, name) or None for name in _OTHER_OPTIONS}
    given["stream"] = False if options.no_stream else None
    scenario = resolve_scenario(path, collect=False if options.no_collect else None, **given)
    more: dict[str, Any] = {"run_path": _path(run_dir), "confirm": (lambda _question: True) if options.yes else None}
    if crew is not None:
        return MasterSession(scenario, crew, **more)
    return LocalSession(scenario, on_request=on_request, **more)


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _scenario_target(path: str) -> str | None:
    """Return the address that a scenario file names, None without one; what is wrong with it is said at the start."""
    try:
        return load_scenario(path).target.url if path else None
    except RamptraceError:
        return None
