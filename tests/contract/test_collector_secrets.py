"""Secrets planted wherever a platform could hold them: none reaches the run directory or the collector's words."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from tests.loadgen.collect.fake_aws import ENDPOINT, US, VARIANT, FakeAws, Server, error, tell_a_scale_out
from tests.loadgen.collect.running import CREDENTIALS, collected, make_run
from traces.run import RunDir
from traces.schema import TABLES

PLANTED = [f"s3cr3t{number:02d}-hunter2" for number in range(14)]
TOKENS = ["hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789", "FwoGZXIvYXdzE" + "Ab9/" * 20, "AKIAIOSFODNN7EXAMPLE"]


class Leaky(FakeAws):
    """An account whose owner put secrets everywhere, and a platform that repeats them."""

    def describe_endpoint(self, asked: dict[str, Any]) -> Any:
        answer = super().describe_endpoint(asked)
        return answer | {
            "FailureReason": f"model server said: token {TOKENS[0]} is wrong",
            "DataCaptureConfig": {"EnableCapture": True, "DestinationS3Uri": f"s3://x/{PLANTED[0]}"},
        }

    def describe_endpoint_config(self, asked: dict[str, Any]) -> Any:
        return super().describe_endpoint_config(asked) | {"KmsKeyId": PLANTED[1], "ExecutionRoleArn": PLANTED[2]}

    def describe_model(self, asked: dict[str, Any]) -> Any:
        environment = {"PLAIN_NAME": PLANTED[3], "OPTION_MODEL_ID": TOKENS[0], "SERVING_OPTS": f"-Dx={TOKENS[1]}"}
        container = {
            "Image": "x/y:1",
            "ModelDataUrl": f"https://bucket/model.tar.gz?X-Amz-Signature={PLANTED[4]}",
            "Environment": environment,
            "ContainerHostname": PLANTED[5],
        }
        return {"ModelName": asked["ModelName"], "PrimaryContainer": container, "ExecutionRoleArn": PLANTED[6]}

    def describe_alarms(self, asked: dict[str, Any]) -> Any:
        answer = super().describe_alarms(asked)
        answer["MetricAlarms"][0] |= {"AlarmDescription": PLANTED[7], "AlarmActions": [PLANTED[8]]}
        return answer


def _everything(run: RunDir) -> str:
    files = "".join(path.read_bytes().decode("latin-1") for path in run.path.rglob("*") if path.is_file())
    return files + "".join(run.scan(table).collect().write_json() for table in TABLES)


def test_no_planted_secret_is_written_or_said(tmp_path: Path) -> None:
    fake = Leaky(20.0)
    server = Server(fake)
    server.start()
    begin_us = fake.now_us() - 20 * US
    tell_a_scale_out(fake, begin_us)
    fake.activities[0]["StatusMessage"] = f"Failed: credential {TOKENS[2]} was refused"
    fake.streams[f"{VARIANT}/i-new"] += [
        (begin_us + 470 * US, f"Starting to load model /opt/ml/model?token={PLANTED[9]}"),
        (begin_us + 471 * US, f"INFO Received request: prompt: '{PLANTED[10]}', headers: Authorization: {TOKENS[0]}"),
        (begin_us + 472 * US, f"Initializing a V1 LLM engine (v1) with config: {PLANTED[11]}"),
    ]
    labels = {
        "aws.sagemaker.endpoint.name": ENDPOINT,
        "@resource.host.id": "i-new",
        "@aws.tag.owner": PLANTED[12],
    }
    fake.prom["gpu_load_time"] = [{"metric": labels, "values": [[(begin_us + 480 * US) / US, "30"]]}]
    refusal = f"User with token {TOKENS[1]} and key {TOKENS[2]} may not call it"

    def meanwhile(step: int) -> bool:
        if step == 1:
            fake.fault = lambda operation: (
                error(400, "AccessDeniedException", refusal) if operation == "GetMetricData" else None
            )
        return step < 3

    run = make_run(tmp_path / "run", server)
    said = collected(run, meanwhile, pause_s=0.6)
    server.stop()
    rows = run.scan("observations").collect()
    assert rows.filter(pl.col("source") == "promql:gpu_load_time").height == 1
    assert rows.filter(pl.col("source") == "logs:pattern").height >= 5
    assert run.scan("gaps").collect()["reason"].to_list() == ["denied"]
    assert run.snapshots()["describe-model"]["PrimaryContainer"]["ModelDataUrl"] == "https://bucket/model.tar.gz"
    written = _everything(run) + json.dumps(said)
    secrets = [*PLANTED, *TOKENS, CREDENTIALS["AWS_SECRET_ACCESS_KEY"], CREDENTIALS["AWS_ACCESS_KEY_ID"]]
    assert [secret for secret in secrets if secret in written] == []
