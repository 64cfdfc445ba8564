"""A whole scale-out through real botocore clients and a real socket: every row of the collector's contract."""

import json
import time
from pathlib import Path

import cbor2
import polars as pl
import pytest

from tests.loadgen.collect.fake_aws import PROMPT, RESOURCE, SECRET, US, FakeAws, Server, tell_a_scale_out
from tests.loadgen.collect.running import collected, make_run
from traces.clock import to_us
from traces.run import RunDir
from traces.schema import Gap, Observation, Sample

SCALE = 20.0


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, int, Server]:
    """A run collected while an endpoint went from one to two instances and back; when the scaler decided."""
    fake = FakeAws(SCALE)
    server = Server(fake)
    server.start()
    begin_us = fake.now_us() - 20 * US
    tell_a_scale_out(fake, begin_us)
    run = make_run(tmp_path_factory.mktemp("told") / "run", server)

    def meanwhile(step: int) -> bool:
        match step:
            case 0:
                fake.desired, fake.status = 2, "Updating"
            case 1:
                fake.current = 2
            case 2:
                fake.desired, fake.current = 1, 1
        return step < 3

    collected(run, meanwhile, pause_s=0.7)
    server.stop()
    return run, begin_us, server


@pytest.fixture(scope="module")
def rows(told: tuple[RunDir, int, Server]) -> pl.DataFrame:
    return told[0].scan("observations").collect()


def one(rows: pl.DataFrame, source: str, anchor: str | None, native: str = "") -> dict:
    found = rows.filter(
        (pl.col("source") == source)
        & pl.col("anchor").cast(pl.String).eq_missing(pl.lit(anchor))
        & pl.col("native_id").str.contains(native, literal=True)
    )
    assert found.height == 1, found
    return found.row(0, named=True)


def test_rows_are_valid_and_unique(told: tuple[RunDir, int, Server], rows: pl.DataFrame) -> None:
    run = told[0]
    Observation.validate(rows)
    Sample.validate(run.scan("samples").collect())
    Gap.validate(run.scan("gaps").collect())
    assert rows.select("source", "native_id").is_unique().all()
    assert run.scan("gaps").collect().is_empty()
    assert set(rows["resource"]) == {RESOURCE}


def test_activity(told: tuple[RunDir, int, Server], rows: pl.DataFrame) -> None:
    begin_us = told[1]
    decision = one(rows, "application-autoscaling:activity", "decision")
    assert (to_us(decision["lo"]), to_us(decision["hi"])) == (begin_us, begin_us)
    assert (decision["scaling_id"], decision["native_id"]) == ("a-1", "a-1:decision")
    assert json.loads(decision["detail"])["desired"] == 2
    end = one(rows, "application-autoscaling:activity", "in_service")
    assert (to_us(end["lo"]), to_us(end["hi"])) == (begin_us, begin_us + 525 * US)


def test_alarm(told: tuple[RunDir, int, Server], rows: pl.DataFrame) -> None:
    begin_us = told[1]
    assert to_us(one(rows, "cloudwatch:alarm-history", "alarm")["lo"]) == begin_us - 2 * US
    breach = one(rows, "cloudwatch:alarm-history", "breach")
    assert to_us(breach["lo"]) == (begin_us - 30 * US) // 1000 * 1000
    assert breach["resolution_us"] == 10 * US


def test_counts_and_status(rows: pl.DataFrame) -> None:
    source = "sagemaker:describe-endpoint"
    up = one(rows, source, "in_service", "current:1->2:")
    assert up["clock"] == "client"
    assert (up["lo"] < up["hi"]) & (up["hi"] == up["response_received"])
    assert one(rows, source, "decision", "desired:1->2:")["lo"] <= up["lo"]
    down = one(rows, source, None, "current:2->1:")
    assert json.loads(down["detail"]) == {"field": "CurrentInstanceCount", "from": 2, "to": 1}
    assert json.loads(one(rows, source, None, "status:")["detail"])["to"] == "Updating"


def test_logs(told: tuple[RunDir, int, Server], rows: pl.DataFrame) -> None:
    begin_us = told[1]
    first = one(rows, "logs:first-event", "container_started")
    assert (to_us(first["lo"]), first["unit_id"]) == ((begin_us + 453 * US) // 1000 * 1000, "i-new")
    assert json.loads(first["detail"])["stream_created"] > to_us(first["lo"])
    lines = rows.filter(pl.col("source") == "logs:pattern").sort("lo")
    assert lines["anchor"].to_list() == [None, "load_started", "load_finished", "ready"]
    assert lines["duration_us"].to_list() == [None, None, 30 * US, None]
    assert set(lines["unit_id"]) == {"i-new"}


def test_reported_durations(told: tuple[RunDir, int, Server], rows: pl.DataFrame) -> None:
    download = one(rows, "promql:model_download_time", "download_finished")
    assert (download["duration_us"], download["unit_id"], download["lo"]) == (168_250_000, "i-new", None)
    assert abs(to_us(download["hi"]) - (told[1] + 453 * US)) < 10
    # Listed under its display name only.
    assert one(rows, "promql:e2e_duration", "in_service")["duration_us"] == 525 * US


def test_samples(told: tuple[RunDir, int, Server]) -> None:
    samples = told[0].scan("samples").collect()
    points = samples.filter(pl.col("source") == "cloudwatch")
    assert points["value"].to_list() == [4.0, 9.0]
    assert set(points["metric"]) == {"ConcurrentRequestsPerModel"}
    assert samples.filter(pl.col("metric") == "heartbeat").height > 5
    offsets = samples.filter(pl.col("metric") == "clock_offset_us")
    assert set(offsets["resource"]) == {"sagemaker", "application-autoscaling", "cloudwatch", "logs", "monitoring"}
    # The header has a resolution of 1 s and truncates; the rest is what a call takes, times the scale.
    assert offsets["value"].max() <= 0.1 * US
    assert offsets["value"].median() > -15 * US


def test_snapshots_and_secrets(told: tuple[RunDir, int, Server]) -> None:
    run = told[0]
    assert set(run.snapshots()) == {
        "alarms",
        "clock-offsets",
        "describe-endpoint-config",
        "describe-endpoint-first",
        "describe-endpoint-last",
        "describe-model",
        "endpoint-facts",
        "scalable-targets",
        "scaling-policies",
    }
    assert run.snapshots()["describe-endpoint-first"]["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    assert run.snapshots()["describe-model"]["PrimaryContainer"]["Image"] == "x/y:1"
    everything = b"".join(path.read_bytes() for path in run.path.rglob("*") if path.is_file())
    tables = "".join(run.scan(t).collect().write_json() for t in ("observations", "samples", "gaps"))
    for secret in (SECRET, PROMPT, "secret-for-tests", "AKIDTEST", "postgres://"):
        assert secret.encode() not in everything
        assert secret not in tables


def test_logs_stop_at_ready(told: tuple[RunDir, int, Server]) -> None:
    """A ready unit's stream is full of requests; it is not read any more."""
    assert told[2].fake.calls["FilterLogEvents"] == 1
    assert told[2].fake.calls["DescribeLogStreams"] > 3


def test_cloudwatch_over_cbor_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of its protocols botocore speaks to CloudWatch changes between its versions."""
    import botocore.model

    order = ("smithy-rpc-v2-cbor", *botocore.model.PRIORITY_ORDERED_SUPPORTED_PROTOCOLS)
    monkeypatch.setattr(botocore.model, "PRIORITY_ORDERED_SUPPORTED_PROTOCOLS", order)
    fake = FakeAws(SCALE)
    server = Server(fake)
    loads, seen = cbor2.loads, []
    monkeypatch.setattr(cbor2, "loads", lambda body: seen.append(time.monotonic()) or loads(body))
    server.start()
    tell_a_scale_out(fake, fake.now_us() - 20 * US)
    run = make_run(tmp_path / "run", server)
    collected(run, lambda step: step < 1, pause_s=1.0)
    server.stop()
    rows = run.scan("observations").collect()
    assert seen, "CBOR was not spoken"
    assert one(rows, "cloudwatch:alarm-history", "breach")["resolution_us"] == 10 * US
    assert run.scan("samples").filter(pl.col("source") == "cloudwatch").collect().height == 2
