"""What the virtual queue did to a load, as a Request table. Pure."""

from __future__ import annotations

from typing import Final

import polars as pl

from loadgen.emulator.virtual_load import CANCELLED, NEVER, OK, TIMED_OUT, WAITING, Load
from loadgen.emulator.virtual_model import VirtualQueue
from traces.schema import Request

_ENDPOINT: Final = "sagemaker"
_OUTCOMES: Final = {OK: "ok", TIMED_OUT: "http_error", CANCELLED: "cancelled", WAITING: "cancelled"}
_QUEUE_FULL: Final = "Your invocation timed out while waiting for a response from container primary."


def requests_of(load: Load, queue: VirtualQueue, start_us: int, end_us: int) -> pl.DataFrame:
    """Return a row per request: what the load asked for and what the queue made of it up to `end_us`."""
    served = queue.served
    frame = pl.DataFrame(
        {
            "row_id": load.row_id,
            "arrival": [start_us + at for at in load.arrival_us],
            "due": list(served.due_us),
            "admitted": list(served.admitted_us),
            "first": list(served.first_us),
            "done": list(served.done_us),
            "unit": list(served.unit),
            "code": list(served.outcome),
            "planned_input_tokens": load.input_tokens,
            "planned_output_tokens": load.output_tokens,
            "tokens": load.tokens,
        },
        schema_overrides={"code": pl.Int64, "unit": pl.Int64},
    )
    sent, ended = pl.col("due") != NEVER, pl.col("done") != NEVER
    ok = pl.col("code") == OK
    admitted = pl.col("admitted") != NEVER
    done = pl.when(ended).then("done").when(sent).then(end_us)
    generated = admitted & (pl.col("first") <= done)
    follows = pl.Series("follows", [before is not None for before in load.before] or [False], dtype=pl.Boolean)
    frame = frame.with_columns(follows if len(load.before) else pl.lit(value=False).alias("follows"))
    whole = ok | ((pl.col("code") == CANCELLED) & generated & (pl.col("tokens") < pl.col("planned_output_tokens")))
    columns = {
        "shard": pl.lit(0, pl.Int64),
        "due": pl.when(sent).then("due").otherwise("arrival"),
        "sent": pl.when(sent).then("due"),
        "headers": pl.when(admitted).then("admitted").when(pl.col("code") == TIMED_OUT).then("done"),
        "first_token": pl.when(generated).then("first"),
        "first_visible_token": pl.when(generated).then("first"),
        "last_token": pl.when(whole & generated).then("done"),
        "done": done,
        "outcome": pl.when(sent).then(pl.col("code").replace_strict(_OUTCOMES)).otherwise(pl.lit("not_sent")),
        "http_status": pl.when(admitted).then(200).when(pl.col("code") == TIMED_OUT).then(424),
        "error_kind": pl.when(pl.col("code") == TIMED_OUT)
        .then(pl.lit("ModelError"))
        .when(pl.col("code") == CANCELLED)
        .then(pl.lit("as_recorded"))
        .when(~ended)
        .then(pl.lit("drain")),
        "error_text": pl.when(pl.col("code") == TIMED_OUT).then(pl.lit(_QUEUE_FULL)),
        "input_tokens": pl.when(ok).then("planned_input_tokens"),
        "output_tokens": pl.when(ok).then("tokens"),
        "chunks": pl.when(whole).then("tokens"),
        "predecessor_late_us": pl.when("follows").then(pl.max_horizontal(pl.col("due") - pl.col("arrival"), 0)),
        "unit_id": pl.when(admitted).then(
            pl.col("unit").replace_strict(dict(enumerate(queue.unit_ids)), default=None, return_dtype=pl.String)
        ),
        "endpoint": pl.lit(_ENDPOINT),
    }
    made = frame.with_columns(**columns)
    schema = pl.Schema(Request)
    absent = [pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in made.columns]
    return made.with_columns(absent).select(pl.col(name).cast(kind) for name, kind in schema.items())
