"""What is said to a server, apart from how it is carried there: one dialect per protocol."""

from __future__ import annotations

from typing import Any, Protocol

from loadgen.endpoints.base import Body, Reply
from loadgen.plan import PlannedRequest
from loadgen.prompts import Prompts
from loadgen.scenario import TargetSection


class Dialect(Protocol):
    """One protocol: the body that asks, where it is posted below a base address, and how the answer is decoded.

    `models_path` is where the server says which models it has; `None` where it cannot. `model` is what is asked for.
    """

    model: str | None

    def path(self, base: str) -> str:
        """Return the operation's path under a base address's path."""

    def models_path(self, base: str) -> str | None:
        """Return the path that lists the models."""

    def body(self, request: PlannedRequest) -> bytes:
        """Return the body that asks for one answer."""

    def decoder(self, reply: Reply, content_type: str) -> Body:
        """Return the decoder for a successful answer."""


class Asking:
    """What all dialects need to ask: the prompts, the model and the scenario's options."""

    def __init__(self, section: TargetSection, prompts: Prompts) -> None:
        self.section = section
        self.prompts = prompts
        self.model = section.model

    def models_path(self, _base: str) -> str | None:
        """Return `None`: such a server does not say which models it has."""
        return None

    def length_options(self) -> dict[str, Any]:
        """Return the fields that hold a server to the output length, where the scenario asks for them."""
        options: dict[str, Any] = {}
        if self.section.ignore_eos:
            options["ignore_eos"] = True
        return options
