"""One request from its due instant to its row in the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import gevent

from loadgen.connect import ConnectFailedError, TransportError
from loadgen.endpoints.base import Body, Endpoint, Headers, Reply
from loadgen.histogram import Histogram
from loadgen.httpclient import DeadlineError, HttpClient
from loadgen.lookahead import Prepared
from loadgen.plan import PlannedRequest
from loadgen.receiving import Decoder, ProtocolError, Stamps
from loadgen.recorder import AS_RECORDED, RequestRow

_TEXT_CHARACTERS = 300
_PLAIN_CONTENT = (None, "identity", "Identity", "")
_PLAIN_TRANSFER = (None, "chunked", "Chunked")


class CancelledError(gevent.GreenletExit):  # type: ignore[misc] # untyped base
    """Thrown into a request in flight to end it; its argument is the reason that is recorded."""


class Watch(Protocol):
    """Who is told of requests while they are under way (client µs)."""

    def due(self, due_us: int) -> None:
        """Take a request whose time has come."""

    def sent(self, due_us: int, sent_us: int) -> None:
        """Take a request whose first byte goes now."""


class Sender:
    """Sends prepared requests and hands a finished row of each to `record`, exactly once; `watch` looks on."""

    def __init__(
        self,
        client: HttpClient,
        endpoint: Endpoint,
        *,
        now_us: Callable[[], int],
        t0_us: int,
        timeout_s: float,
        record: Callable[[RequestRow], None],
        watch: Watch | None = None,
        record_chunks: bool = False,
    ) -> None:
        self._client = client
        self._endpoint = endpoint
        self._now_us = now_us
        self._t0_us = t0_us
        self._timeout_s = timeout_s
        self._record = record
        self._watch = watch
        self._record_chunks = record_chunks
        self.in_flight = 0
        self.lag = Histogram()
        self.connect = Histogram()

    def send(self, item: Prepared) -> None:
        """Send one request and record how it ended. Never raises for what a server or a network does."""
        row = prepared_row(item, self._t0_us, self._endpoint.kind)
        request, stamps, reply = item.request, Stamps(), Reply(keep_instants=self._record_chunks)
        body: Body | None = None
        if self._watch is not None:
            self._watch.due(row.due)
            stamps.on_sent = partial(self._watch.sent, row.due)

        def open_decoder(status: int, headers: Headers) -> Decoder:
            nonlocal body
            if _is_encoded(headers):
                reply.fail("encoded_body", "the answer is compressed, although it was asked for as it is")
            body = self._endpoint.open(status, headers, reply)
            return body if request.cancel_after_tokens is None else _Leaving(body, reply, request.cancel_after_tokens)

        self.in_flight += 1
        leave = _leave_after(request.cancel_after_us, stamps)
        try:
            self._client.exchange(item.wire, stamps, self._timeout_s, open_decoder)
            reply.complete = True
        except ConnectFailedError as error:
            row.outcome, row.error_kind, row.error_text = "connect_error", error.kind, str(error)
        except TransportError as error:
            row.outcome = "stream_error" if isinstance(error, ProtocolError) else "truncated"
            row.error_kind, row.error_text = error.kind, str(error)
        except DeadlineError:
            row.outcome, row.error_kind = "timeout", "request_timeout"
            row.error_text = f"no complete answer within {self._timeout_s:g} s"
        except CancelledError as cancelled:
            row.outcome, row.error_kind = "cancelled", str(cancelled)
        except Exception as error:
            reply.fail("undecodable", type(error).__name__)
        finally:
            leave.close()
            self.in_flight -= 1
            row.done = self._now_us()
            if body is not None:
                body.close()
            _fill(row, stamps, reply)
            if row.sent is not None:
                self.lag.add(max(0, row.sent - row.due))
            if stamps.connect_us is not None:
                self.connect.add(stamps.connect_us)
            self._record(row)


def planned_row(request: PlannedRequest, t0_us: int, kind: str) -> RequestRow:
    """Return a planned request's row before anything was observed."""
    return RequestRow(
        row_id=request.row_id,
        due=t0_us + request.due_us,
        outcome="ok",
        endpoint=kind,
        planned_input_tokens=request.input_tokens,
        planned_output_tokens=request.output_tokens,
    )


def prepared_row(item: Prepared, t0_us: int, kind: str) -> RequestRow:
    """Return a prepared request's row before anything was observed: due when the turn before allows it."""
    row = planned_row(item.request, t0_us, kind)
    row.due, row.predecessor_late_us = t0_us + item.due_us, item.predecessor_late_us
    return row


class _Leaving:
    """Hands an answer on until its client leaves: after so many stream events with generated content."""

    def __init__(self, body: Body, reply: Reply, tokens: int) -> None:
        self._body = body
        self._reply = reply
        self._tokens = tokens

    def feed(self, data: bytes, at_us: int) -> None:
        self._body.feed(data, at_us)
        if (self._reply.chunks or 0) >= self._tokens and not self._reply.finished:
            raise CancelledError(AS_RECORDED)


def _leave_after(cancel_after_us: int | None, stamps: Stamps) -> gevent.Timeout:
    """Return a timer that cancels the request of this greenlet so long after its sending, or one that never fires."""
    if cancel_after_us is None:
        return gevent.Timeout(None)
    leave = gevent.Timeout(cancel_after_us / 1e6, CancelledError(AS_RECORDED))

    def start_anew() -> None:
        leave.cancel()
        leave.start()

    stamps.on_sending = start_anew
    return leave


def _is_encoded(headers: Headers) -> bool:
    """Tell whether a body is not what its bytes say: compressed, say (RFC 9110, 12.5.3)."""
    content, transfer = headers.get("content-encoding"), headers.get("transfer-encoding")
    return content not in _PLAIN_CONTENT or transfer not in _PLAIN_TRANSFER


def _fill(row: RequestRow, stamps: Stamps, reply: Reply) -> None:
    row.sent, row.headers, row.http_status = stamps.sent_us, stamps.headers_us, stamps.status
    row.bytes_sent, row.bytes_received = stamps.bytes_sent, stamps.bytes_received
    row.first_token, row.first_visible_token = reply.first_token_us, reply.first_visible_us
    row.last_token, row.max_gap_us, row.chunks = reply.last_token_us, reply.max_gap_us, reply.chunks
    row.input_tokens, row.output_tokens = reply.input_tokens, reply.output_tokens
    row.unit_id = reply.unit_id
    if reply.chunk_instants_us and stamps.sent_us is not None:
        row.chunk_us = [at_us - stamps.sent_us for at_us in reply.chunk_instants_us]
    if row.outcome in {"ok", "truncated"}:
        _judge(row, reply)
    if row.error_text:
        row.error_text = row.error_text[:_TEXT_CHARACTERS]


def _judge(row: RequestRow, reply: Reply) -> None:
    """Settle the outcome of an answer that arrived, whole or cut."""
    if reply.error_kind is not None:
        is_status = row.http_status is not None and not 200 <= row.http_status < 300
        row.outcome = "http_error" if is_status else "stream_error"
        row.error_kind, row.error_text = reply.error_kind, reply.error_text
    elif row.outcome == "ok" and not reply.finished:
        row.outcome, row.error_kind = "truncated", "no_end_marker"
        row.error_text = "the answer ended without a finish reason, [DONE] or usage"
