"""Locust's own event for each request: what its statistics, its tables and its listeners get."""

from __future__ import annotations

from locust.env import Environment

from loadgen.recorder import AS_RECORDED, RequestRow


class RequestFailedError(Exception):
    """What Locust's failure table shows: the kind of failure, never a response's content."""


def fire_request(environment: Environment, row: RequestRow, *, label: str, url: str) -> None:
    """Fire one `request` event for a finished row."""
    failed = row.outcome != "ok" and row.error_kind != AS_RECORDED
    first = row.first_token
    environment.events.request.fire(
        request_type="POST",
        name=label,
        response_time=(row.done or row.due) / 1e3 - row.due / 1e3,
        response_length=row.bytes_received or 0,
        response=None,
        exception=RequestFailedError(row.error_kind or row.outcome) if failed else None,
        start_time=row.due / 1e6,
        url=url,
        context={
            "row_id": row.row_id,
            "outcome": row.outcome,
            "lag_ms": None if row.sent is None else (row.sent - row.due) / 1e3,
            "ttft_ms": None if first is None or row.sent is None else (first - row.sent) / 1e3,
            "ttft_from_due_ms": None if first is None else (first - row.due) / 1e3,
            "input_tokens": row.input_tokens,
            "output_tokens": row.output_tokens,
            "unit_id": row.unit_id,
        },
    )
