"""Faults of one service: it slows down or is given up, the gap is recorded, and no other source suffers."""

from pathlib import Path

import polars as pl
import pytest
from aiohttp import web

from tests.loadgen.collect.fake_aws import FakeAws, Server, error, tell_a_scale_out
from tests.loadgen.collect.running import collected, make_run
from traces.run import RunDir

SCALE = 20.0
ACTIVITY = "application-autoscaling:activity"


@pytest.fixture
def fake() -> FakeAws:
    return FakeAws(SCALE)


def _collect(
    fake: FakeAws, path: Path, pause_s: float = 1.2, steps: int = 1, change=lambda step: None
) -> tuple[RunDir, list[str]]:
    server = Server(fake)
    server.start()
    tell_a_scale_out(fake, fake.now_us() - 20_000_000)
    run = make_run(path / "run", server)

    def meanwhile(step: int) -> bool:
        change(step)
        return step < steps

    try:
        return run, collected(run, meanwhile, pause_s)
    finally:
        server.stop()


def _gaps(run: RunDir) -> pl.DataFrame:
    return run.scan("gaps").collect()


@pytest.mark.parametrize("answer", [lambda: error(400, "ThrottlingException"), lambda: web.Response(status=429)])
def test_a_throttling_storm_slows_one_source_and_ends(fake: FakeAws, tmp_path: Path, answer) -> None:
    fake.fault = lambda operation: answer() if operation == "DescribeScalingActivities" else None
    calls: list[int] = []

    def change(step: int) -> None:
        calls.append(fake.calls["DescribeScalingActivities"])
        if step == 1:
            fake.fault = lambda operation: None

    run, said = _collect(fake, tmp_path, steps=4, change=change)
    # Polling each 0.25 s unhindered would be five polls in the pause; doubling allows 0, 0.5, 1.5, … only. Each of them
    # tries its call four times.
    assert calls[1] <= 4 * 4
    gaps = _gaps(run)
    assert gaps.select("source", "reason").rows() == [(ACTIVITY, "throttled")]
    assert gaps["end"].null_count() == 0
    assert fake.calls["DescribeEndpoint"] > 10
    # What was missed is read afterwards.
    assert run.scan("observations").filter(pl.col("source") == ACTIVITY).collect().height == 2
    assert len(said) == 1


def test_throttling_on_a_real_clock_with_botocores_own_retries(tmp_path: Path) -> None:
    fake = FakeAws(1.0)
    server = Server(fake)
    server.start()
    fake.fault = lambda operation: error(400, "ThrottlingException") if operation == "DescribeEndpointConfig" else None
    run = make_run(tmp_path / "run", server, poll="200ms", metrics_poll="200ms")
    try:
        collected(run, lambda step: step < 1, pause_s=1.0)
    finally:
        server.stop()
    assert fake.calls["DescribeEndpointConfig"] >= 2
    assert set(_gaps(run).select("source", "reason").iter_rows()) == {("sagemaker:configuration", "throttled")}
    assert fake.calls["DescribeScalingActivities"] >= 4


def test_promql_limits_are_throttling(fake: FakeAws, tmp_path: Path) -> None:
    fake.fault = lambda operation: web.json_response({"status": "error"}, status=422) if operation == "query" else None
    run, _ = _collect(fake, tmp_path)
    assert set(_gaps(run).select("source", "reason").iter_rows()) == {("promql", "throttled")}


def test_denied_gives_up_one_source_only(fake: FakeAws, tmp_path: Path) -> None:
    text = "User: arn:aws:iam::123456789012:user/x is not authorized to perform: logs:DescribeLogStreams"
    fake.fault = lambda operation: (
        error(400, "AccessDeniedException", text) if operation == "DescribeLogStreams" else None
    )
    run, said = _collect(fake, tmp_path)
    assert fake.calls["DescribeLogStreams"] == 1
    gaps = _gaps(run)
    assert gaps.select("source", "reason").rows() == [("logs", "denied")]
    assert gaps["end"].to_list() == [None]
    assert "123456789012" not in gaps["detail"][0]
    assert len(said) == 1
    assert "not authorized" in said[0]
    assert "123456789012" not in said[0]
    sources = set(run.scan("observations").collect()["source"])
    assert {ACTIVITY, "cloudwatch:alarm-history", "promql:model_download_time"} <= sources


def test_a_model_that_may_not_be_read_costs_its_snapshot_only(fake: FakeAws, tmp_path: Path) -> None:
    fake.fault = lambda operation: error(400, "AccessDeniedException") if operation == "DescribeModel" else None
    run, _ = _collect(fake, tmp_path, pause_s=4)
    assert "describe-endpoint-config" in run.snapshots()
    assert "describe-model" not in run.snapshots()
    assert fake.calls["DescribeModel"] == 1
    assert fake.calls["DescribeEndpointConfig"] > 1


@pytest.mark.parametrize(
    "body",
    ["<html>gateway</html>", "{", "[]", "null", '{"ScalingActivities": 7}', '{"ScalingActivities": ["x"]}'],
)
def test_malformed_answers_are_gaps(fake: FakeAws, tmp_path: Path, body: str) -> None:
    fake.fault = lambda operation: body if operation == "DescribeScalingActivities" else None
    change = lambda step: setattr(fake, "fault", lambda operation: None)  # noqa: E731
    run, _ = _collect(fake, tmp_path, pause_s=0.6, steps=2, change=change)
    assert run.scan("observations").filter(pl.col("source") == ACTIVITY).collect().height == 2
    assert set(_gaps(run).select("source", "reason").iter_rows()) == {(ACTIVITY, "malformed")}


def test_a_malformed_answer_never_becomes_a_row(fake: FakeAws, tmp_path: Path) -> None:
    fake.fault = lambda operation: "<html>" if operation in {"DescribeAlarmHistory", "query", "GetMetricData"} else None
    run, _ = _collect(fake, tmp_path)
    assert {"promql", "cloudwatch:alarm-history", "cloudwatch"} == set(_gaps(run)["source"])
    sources = set(run.scan("observations").collect()["source"])
    assert sources == {ACTIVITY, "logs:first-event", "logs:pattern"}


def test_the_platform_vanishes_and_returns(fake: FakeAws, tmp_path: Path) -> None:
    server = Server(fake)
    server.start()
    run = make_run(tmp_path / "run", server)

    def meanwhile(step: int) -> bool:
        if step == 0:
            server.stop()
            fake.current = 2
        if step == 1:
            server.start()
        return step < 3

    collected(run, meanwhile, pause_s=1.0)
    server.stop()
    gaps = _gaps(run)
    assert set(gaps["reason"]) == {"unreachable"}
    assert set(gaps["source"]) >= {"sagemaker:describe-endpoint", ACTIVITY, "cloudwatch", "promql"}
    assert gaps["end"].null_count() == 0
    # The change that happened meanwhile has an interval as wide as the outage.
    (row,) = run.scan("observations").filter(pl.col("anchor") == "in_service").collect().rows(named=True)
    (gap,) = gaps.filter(pl.col("source") == "sagemaker:describe-endpoint").rows(named=True)
    assert row["lo"] <= gap["start"]
    assert row["hi"] >= gap["start"]
    assert (row["hi"] - row["lo"]).total_seconds() > 0.8


def test_a_service_without_an_answer_does_not_hold_the_others(
    fake: FakeAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loadgen.collect import aws

    monkeypatch.setattr(aws, "_READ_TIMEOUT_S", 1)
    fake.fault = lambda operation: web.Response(status=503) if operation == "DescribeLogStreams" else None
    run, _ = _collect(fake, tmp_path)
    assert set(_gaps(run).select("source", "reason").iter_rows()) == {("logs", "unreachable")}
    assert fake.calls["DescribeEndpoint"] > 4


def test_expired_credentials_are_tried_again(fake: FakeAws, tmp_path: Path) -> None:
    fake.fault = lambda operation: (
        error(400, "ExpiredTokenException") if operation == "DescribeScalingActivities" else None
    )
    change = lambda step: setattr(fake, "fault", lambda operation: None)  # noqa: E731
    run, _ = _collect(fake, tmp_path, steps=2, change=change)
    assert set(_gaps(run)["reason"]) == {"expired"}
    assert run.scan("observations").filter(pl.col("source") == ACTIVITY).collect().height == 2
