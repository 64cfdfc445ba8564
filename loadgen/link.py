"""What a replay talks to: how a request is put to its endpoint, and the connections for it."""

from __future__ import annotations

from collections.abc import Callable

from loadgen.endpoints.http import HttpEndpoint
from loadgen.endpoints.registry import make_endpoint
from loadgen.httpclient import HttpClient
from loadgen.native import in_thread
from loadgen.preflight import find_emulator, get_json, is_loopback, reach
from loadgen.prompts import Prompts
from loadgen.scenario import Scenario
from traces.clock import EndpointClock


class TargetLink:
    """The endpoint that a scenario names; `client` is there once it was reached."""

    def __init__(self, scenario: Scenario, now_us: Callable[[], int]) -> None:
        prompts = in_thread(lambda: Prompts(scenario.prompts, seed=scenario.replay.seed))
        self.endpoint = make_endpoint(scenario.target, prompts)
        self.client: HttpClient
        self._scenario = scenario
        self._now_us = now_us

    def reach(self) -> None:
        """Connect to it, and find out what it serves. Raises `UnreachableError`."""
        target = self._scenario.target
        self.client = reach(
            self.endpoint.target,
            connect_timeout_s=target.connect_timeout_us / 1e6,
            verify_tls=target.verify_tls,
            now_us=self._now_us,
        )
        self._name_model()
        self.endpoint.refresh()
        if target.kind == "sagemaker":
            from loadgen.endpoints.existence import refuse_missing

            refuse_missing(self._scenario, loopback=is_loopback(self.endpoint.target.host))

    def read_clock(self) -> EndpointClock | None:
        """Return the emulator's clock, `None` for a real platform."""
        emulator = self._scenario.emulator
        return find_emulator(emulator.url if emulator else None, self.endpoint.target, self.client, self._now_us)

    def _name_model(self) -> None:
        """Ask a server that can tell which model it serves, when nobody said."""
        endpoint = self.endpoint
        if not isinstance(endpoint, HttpEndpoint) or endpoint.models_path is None or endpoint.model is not None:
            return
        document = get_json(self.client, endpoint.target, endpoint.models_path, endpoint.auth)
        try:
            endpoint.serve(str(document["data"][0]["id"]))
        except (TypeError, KeyError, IndexError):
            return  # the trace's own names are asked for, or none
