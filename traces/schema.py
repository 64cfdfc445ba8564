"""The tables of a run: the single source of truth for writers, readers and documentation.

Instants are `timestamp[µs, UTC]`; durations are int64 with the suffix `_us`. Null means *not observed*.
Enumerations are closed, and the same words stand in code, files, command line, reports and colours.
"""

from __future__ import annotations

from typing import Final

import dataframely as dy
import polars as pl

SCHEMA_VERSION: Final = "1.2"
"""Stored in each file's metadata. Readers accept files of the same major version; a new column raises the minor."""

ANCHORS: Final = (
    "onset",
    "breach",
    "alarm",
    "decision",
    "launched",
    "pull_started",
    "pull_finished",
    "download_started",
    "download_finished",
    "container_started",
    "load_started",
    "load_finished",
    "ready",
    "in_service",
    "first_served",
    "recovered",
)
"""What an observation can date, in causal order (pull and download run side by side)."""

REPORTED_SPANS: Final = {
    "pull_finished": "pull_started",
    "download_finished": "download_started",
    "load_finished": "load_started",
    "ready": "container_started",
    "in_service": "decision",
}
"""Where a reported duration begins: an observation with `duration_us` at the key lasted since the value's anchor."""

METHODS: Final = ("reported", "event", "polled", "derived", "prior")
"""How a value is known: the platform states the duration; a timestamped event; a change seen between two polls;
a difference or a comparison of other values; an assumption."""

CLOCKS: Final = ("service", "instance", "node", "client")
"""Whose clock an instant was read from. `client` instants are wall time of the load generator's machine; all
others are in endpoint time (see `traces.clock`)."""

OUTCOMES: Final = (
    "ok",
    "http_error",
    "connect_error",
    "timeout",
    "truncated",
    "stream_error",
    "cancelled",
    "not_sent",
)

PLATFORMS: Final = ("sagemaker", "ecs", "ec2", "kubernetes", "probe", "other")

PHASES: Final = (
    "emission",
    "evaluation",
    "decision",
    "staging",
    "provisioning",
    "pull",
    "download",
    "start",
    "weights",
    "warm_up",
    "registration",
    "recovery",
)
"""The leaves, in causal order. Joint phases join leaves with `+` (`provisioning+pull`); waits are `wait:<leaf>`;
what no signal explains is `unattributed`."""

HEADLINES: Final = {
    "detection": ("emission", "evaluation", "decision"),
    "provisioning": ("provisioning",),
    "pull": ("pull",),
    "load": ("download", "start", "weights", "warm_up", "registration"),
}
"""The four headline phases and the leaves they hold."""


def _instant(description: str, *, nullable: bool = True) -> dy.Datetime:
    return dy.Datetime(time_unit="us", time_zone="UTC", nullable=nullable, description=description)


class Trace(dy.Schema):
    """What was to be sent: one row per recorded request, in order of arrival."""

    row_id = dy.Int64(nullable=False, min=0, primary_key=True, description="position in the source, from 0")
    arrival_us = dy.Int64(nullable=False, min=0, description="arrival, from the trace's start")
    input_tokens = dy.Int64(nullable=True, min=0, description="prompt length")
    output_tokens = dy.Int64(nullable=True, min=0, description="generated length")
    model = dy.String(nullable=True, description="model asked for, as recorded")
    session_id = dy.String(nullable=True, description="conversation the request belongs to")
    turn = dy.Int64(nullable=True, min=0, description="place in the conversation")
    parent_row = dy.Int64(nullable=True, min=0, description="row_id of the turn before")
    think_us = dy.Int64(nullable=True, min=0, description="pause after the turn before ended")
    prefix_blocks = dy.List(dy.Int64(nullable=False), nullable=True, description="ids of the prompt's prefix blocks")
    block_tokens = dy.Int64(nullable=True, min=1, description="tokens in one prefix block")
    images = dy.Int64(nullable=True, min=0, description="images in the prompt")
    cancel_after_tokens = dy.Int64(nullable=True, min=1, description="the client left after so many output tokens")
    cancel_after_us = dy.Int64(nullable=True, min=0, description="the client left so long after sending")
    source_status = dy.Int64(nullable=True, description="HTTP status in the recording")
    source_latency_us = dy.Int64(nullable=True, min=0, description="latency in the recording")
    payload_ref = dy.String(nullable=True, description="where the recorded payload lies")


class Request(dy.Schema):
    """What was sent and what came back: one row per request, client clock."""

    row_id = dy.Int64(nullable=False, min=0, description="the trace row, plus lap × laps.stride of the manifest")
    shard = dy.Int64(nullable=False, min=0, description="which worker sent it")
    due = _instant("when the schedule wanted it sent; for a later turn not before the one before it", nullable=False)
    sent = _instant("when its first byte was written")
    headers = _instant("when the response's headers had arrived")
    first_token = _instant("first generated token of any channel")
    first_visible_token = _instant("first generated token outside the reasoning channel")
    last_token = _instant("last generated token")
    done = _instant("when the response, or the attempt, ended")
    outcome = dy.Enum(OUTCOMES, nullable=False, description="how it ended")
    http_status = dy.Int64(nullable=True, description="status code")
    error_kind = dy.String(nullable=True, description="machine-readable cause of a failure, or why it was not sent")
    error_text = dy.String(nullable=True, max_length=300, description="redacted message, at most 300 characters")
    planned_input_tokens = dy.Int64(nullable=True, description="prompt tokens aimed at")
    planned_output_tokens = dy.Int64(nullable=True, description="output tokens asked for")
    input_tokens = dy.Int64(nullable=True, description="prompt tokens as the server reports them")
    output_tokens = dy.Int64(nullable=True, description="output tokens as the server reports them")
    chunks = dy.Int64(nullable=True, description="stream events that carried generated content")
    chunk_us = dy.List(
        dy.Int64(nullable=False),
        nullable=True,
        description="when each of them came, after sent (replay --record-chunks)",
    )
    bytes_sent = dy.Int64(nullable=True, description="request bytes, head and body")
    bytes_received = dy.Int64(nullable=True, description="response body bytes")
    max_gap_us = dy.Int64(nullable=True, description="longest pause between two chunks")
    predecessor_late_us = dy.Int64(nullable=True, description="delay of due inherited from the turn before")
    unit_id = dy.String(nullable=True, description="instance that answered, where the response tells")
    endpoint = dy.String(nullable=False, description="kind of endpoint")


class Observation(dy.Schema):
    """An anchor seen by the collector, as the interval it must lie in.

    `lo` null: no lower bound is known; `hi` null: no upper bound. `anchor` null: a fact that dates nothing (a scaling
    that was refused, say). Duplicates by (`source`, `native_id`) may occur after a resume and on mutable records: the
    row received last holds.
    """

    platform = dy.Enum(PLATFORMS, nullable=False, description="who runs the endpoint")
    resource = dy.String(nullable=False, description="the scaled thing, in the platform's own words")
    scaling_id = dy.String(nullable=True, description="the platform's id of the scaling activity")
    unit_id = dy.String(nullable=True, description="instance, copy, task or pod")
    anchor = dy.Enum(ANCHORS, nullable=True, description="what it dates")
    lo = _instant("not before")
    hi = _instant("not after")
    duration_us = dy.Int64(nullable=True, description="reported duration since the opening anchor (REPORTED_SPANS)")
    source = dy.String(nullable=False, description="API or log that told, for instance logs:first-event")
    method = dy.Enum(METHODS, nullable=False, description="how it is known")
    native_id = dy.String(nullable=False, description="stable id within the source")
    clock = dy.Enum(CLOCKS, nullable=False, description="clock of lo and hi")
    resolution_us = dy.Int64(nullable=True, min=0, description="granularity of the source's stamps")
    request_sent = _instant("when the reading that told was sent (client clock)")
    response_received = _instant("when it was received (client clock)", nullable=False)
    verified = dy.Bool(nullable=False, description="whether the source's meaning was checked on a live platform")
    detail = dy.String(nullable=True, description="JSON of what else the source said")

    @dy.rule()
    def ordered(cls) -> pl.Expr:  # noqa: N805 - dataframely passes the schema
        """An interval does not end before it begins (an open side passes)."""
        return pl.col("lo").is_null() | pl.col("hi").is_null() | (pl.col("lo") <= pl.col("hi"))


class Sample(dy.Schema):
    """A metric datapoint. It covers [start, start + period_us) in endpoint time."""

    source = dy.String(nullable=False, description="cloudwatch, promql, collector or replay")
    metric = dy.String(nullable=False)
    resource = dy.String(nullable=False)
    unit_id = dy.String(nullable=True, description="instance the datapoint is about")
    start = _instant("start of the period", nullable=False)
    period_us = dy.Int64(nullable=False, min=0, description="0 for an instantaneous reading")
    statistic = dy.String(nullable=False, description="Sum, Average, Maximum, Minimum, SampleCount or Value")
    value = dy.Float64(nullable=False)
    received = _instant("when the collector received it (client clock)", nullable=False)


class Gap(dy.Schema):
    """A stretch during which a source could not be read (client clock). A gap widens intervals; it never disappears."""

    source = dy.String(nullable=False)
    start = _instant("last good reading before it", nullable=False)
    end = _instant("first good reading after it; null while it lasts")
    reason = dy.String(
        nullable=False,
        description="throttled, denied, unreachable, expired, malformed, stopped, or disk (rows were lost)",
    )
    detail = dy.String(nullable=True, max_length=300, description="redacted message")


class Anchor(dy.Schema):
    """A reconciled anchor of one unit in one scale-out (endpoint clock). Unit-independent anchors have no unit_id."""

    run_id = dy.String(nullable=False)
    scale_out = dy.Int64(nullable=False, min=0)
    unit_id = dy.String(nullable=True)
    anchor = dy.Enum(ANCHORS, nullable=False)
    lo = _instant("tightest lower bound")
    point = _instant("best single value within the bounds", nullable=False)
    hi = _instant("tightest upper bound")
    method = dy.Enum(METHODS, nullable=False)
    sources = dy.String(nullable=False, description="comma-separated sources that bound it")


class ScaleOut(dy.Schema):
    """One scale-out (endpoint clock): from the onset of demand to the unit that completed the needed capacity."""

    run_id = dy.String(nullable=False)
    condition = dy.String(nullable=True, description="what was varied, for instance image-cache-off")
    emulated = dy.Bool(nullable=False)
    scale_out = dy.Int64(nullable=False, min=0)
    scaling_id = dy.String(nullable=True)
    units_before = dy.Int64(nullable=True)
    units_desired = dy.Int64(nullable=True)
    marginal_unit = dy.String(nullable=True, description="unit whose path is attributed")
    onset_lo = _instant("")
    onset = _instant("demand rose beyond capacity")
    onset_hi = _instant("")
    decision = _instant("the scaler asked for more")
    in_service = _instant("the marginal unit counted as in service; null if never seen")
    time_to_capacity_us = dy.Int64(nullable=True, min=0, description="in_service - onset")
    startup_us = dy.Int64(nullable=True, min=0, description="in_service - decision")
    unattributed_us = dy.Int64(nullable=True, min=0)
    censored = dy.Bool(nullable=False, description="capacity was not reached while we looked")


class Phase(dy.Schema):
    """One phase of one scale-out along the marginal unit's critical path.

    Over the rows of a scale-out whose `parent` is null, `critical_us` sums exactly to `time_to_capacity_us`
    (`unattributed` is a row like the others).
    """

    run_id = dy.String(nullable=False)
    scale_out = dy.Int64(nullable=False, min=0)
    unit_id = dy.String(nullable=True)
    phase = dy.String(nullable=False, description="leaf, headline, joint phase, wait:<leaf> or unattributed")
    parent = dy.String(nullable=True, description="phase this one is a part of; null at the top")
    headline = dy.String(nullable=True, description="headline phase(s) it counts to")
    start = _instant("")
    end = _instant("")
    critical_us = dy.Int64(nullable=False, min=0, description="time on the critical path")
    critical_lo_us = dy.Int64(nullable=False, min=0)
    critical_hi_us = dy.Int64(nullable=False, min=0)
    duration_us = dy.Int64(nullable=True, min=0, description="own length, also where it overlaps others")
    lo_us = dy.Int64(nullable=True, min=0, description="bounds on the own length")
    hi_us = dy.Int64(nullable=True, min=0)
    method = dy.Enum(METHODS, nullable=False)


class Truth(dy.Schema):
    """What really happened inside the emulator (endpoint clock). Tests hold attribution to it; no pipeline reads it."""

    scaling_id = dy.String(nullable=True)
    unit_id = dy.String(nullable=True)
    anchor = dy.Enum(ANCHORS, nullable=False)
    at = _instant("when it happened", nullable=False)


TABLES: Final[dict[str, type[dy.Schema]]] = {
    "requests": Request,
    "observations": Observation,
    "samples": Sample,
    "gaps": Gap,
}
"""The sharded tables of a run directory, by folder name."""
