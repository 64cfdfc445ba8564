"""Real time for the model: keeps it at the endpoint's present and tells waiting requests what happened to them.

One timer serves the model's next event and the next token of every stream; there is no task per request or per token.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from loadgen.emulator.model import Model
from loadgen.emulator.serving import Admitted, Effect, Finished, Refused
from traces.clock import ClientClock, EndpointClock

COALESCE_US = 5_000
"""Tokens of one stream that come within this much client time go out in one write, still one event each."""

_SHORTEST_SLEEP_S = 0.0005


class Exchange:
    """One request between its client and the model.

    `admitted` gives the serving unit, or None when the queue was full for too long; `finished` comes after the last
    token was handed to the sink.
    """

    __slots__ = ("admitted", "complete", "finished", "output_tokens", "refused", "request_id", "sink", "written")

    def __init__(self, request_id: str, output_tokens: int, loop: asyncio.AbstractEventLoop) -> None:
        self.request_id = request_id
        self.output_tokens = output_tokens
        self.admitted: asyncio.Future[str | None] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()
        self.sink: Callable[[int, int], None] | None = None
        self.written = 0
        self.complete = False
        self.refused = False


class Driver:
    """Runs a model in real time, `time_scale` times faster than the client's clock."""

    def __init__(self, model_at: Callable[[int], Model], time_scale: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._client_clock = ClientClock()
        epoch_us = self._client_clock.now_us()
        self.clock = EndpointClock(client_epoch_us=epoch_us, endpoint_epoch_us=epoch_us, time_scale=time_scale)
        self.model = model_at(epoch_us)
        self._exchanges: dict[str, Exchange] = {}
        self._due: list[tuple[int, int, Exchange]] = []
        self._entered = itertools.count()
        self._coalesce_us = round(COALESCE_US * time_scale)
        self._timer: asyncio.TimerHandle | None = None
        self._arm()

    def now_us(self) -> int:
        """Return the present instant on the endpoint's clock."""
        return self.clock.to_endpoint_us(self._client_clock.now_us())

    def both_clocks_us(self) -> tuple[int, int]:
        """Return the same instant on the endpoint's and on the client's clock."""
        client_us = self._client_clock.now_us()
        return self.clock.to_endpoint_us(client_us), client_us

    def sync(self) -> Model:
        """Return the model, brought to the present."""
        self._handle(self.model.advance(self.now_us()))
        self._arm()
        return self.model

    def submit(self, input_tokens: int, output_tokens: int) -> Exchange:
        """Send a request into the model."""
        exchange = Exchange(f"{next(self._entered):x}", output_tokens, self._loop)
        self._exchanges[exchange.request_id] = exchange
        self._handle(self.model.arrive(self.now_us(), exchange.request_id, input_tokens, output_tokens))
        self._arm()
        return exchange

    def stream(self, exchange: Exchange, sink: Callable[[int, int], None]) -> None:
        """Hand an admitted request's tokens to `sink(first, end)` as they come, counted from 0."""
        exchange.sink = sink
        if exchange.complete:
            self._flush(exchange, exchange.output_tokens)
            self._close(exchange)
            return
        self._enter(exchange)
        self._arm()

    def cancel(self, exchange: Exchange) -> None:
        """Take a request out because its client went away; a finished one is left alone."""
        if self._exchanges.pop(exchange.request_id, None) is not None:
            exchange.complete = True
            self._handle(self.model.cancel(self.now_us(), exchange.request_id))
            self._arm()

    def stop(self) -> None:
        """Stop the timer; the model stays where it is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        self._timer = None
        try:
            now_us = self.now_us()
            self._handle(self.model.advance(now_us))
            while self._due and self._due[0][0] <= now_us:
                _, _, exchange = heapq.heappop(self._due)
                if exchange.complete:
                    continue
                self._flush(exchange, self.model.serving.tokens_by(exchange.request_id, now_us) or 0)
                if not exchange.complete:
                    self._enter(exchange, now_us + self._coalesce_us if exchange.written else 0)
        finally:
            self._arm()

    def _handle(self, effects: list[Effect]) -> None:
        for effect in effects:
            exchange = self._exchanges.get(effect.request_id)
            if exchange is None:
                continue
            if isinstance(effect, Admitted):
                _resolve(exchange.admitted, effect.unit_id)
                continue
            del self._exchanges[effect.request_id]
            exchange.complete = True
            if isinstance(effect, Finished):
                if exchange.sink is not None:
                    self._flush(exchange, exchange.output_tokens)
                    self._close(exchange)
            else:
                exchange.refused = isinstance(effect, Refused)
                _resolve(exchange.admitted, None)

    def _flush(self, exchange: Exchange, total: int) -> None:
        if exchange.sink is not None and total > exchange.written:
            first, exchange.written = exchange.written, total
            exchange.sink(first, total)

    def _close(self, exchange: Exchange) -> None:
        _resolve(exchange.finished, None)

    def _enter(self, exchange: Exchange, not_before_us: int = 0) -> None:
        due_us = self.model.serving.token_due_us(exchange.request_id, exchange.written + 1)
        if due_us is not None:
            heapq.heappush(self._due, (max(due_us, not_before_us), next(self._entered), exchange))

    def _arm(self) -> None:
        """Set the timer for whatever comes first, unless it is set for that or earlier."""
        model_us = self.model.next_event_us()
        stream_us = self._due[0][0] if self._due else None
        upcoming = [at for at in (model_us, stream_us) if at is not None]
        if not upcoming:
            return
        at_s = self._client_clock.monotonic_s_of(self.clock.to_client_us(min(upcoming)))
        at_s = max(at_s, self._loop.time() + _SHORTEST_SLEEP_S)
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._wake)


def _resolve(future: asyncio.Future[str | None] | asyncio.Future[None], value: str | None) -> None:
    if not future.done():
        future.set_result(value)  # type: ignore[arg-type]
