"""Secrets planted wherever a platform could hold them: none reaches the run directory or the collector's words."""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from botocore.exceptions import ClientError

from loadgen.collect.aws import typed
from loadgen.collect.base import Answer, Reading
from loadgen.collect.journal import Journal
from loadgen.collect.kube_client import refused
from loadgen.collect.rows import gap
from tests.loadgen.collect.fake_aws import ENDPOINT, US, VARIANT, FakeAws, Server, error, tell_a_scale_out
from tests.loadgen.collect.planting import SECRET, aws_shape, kube_shape, plant
from tests.loadgen.collect.running import CREDENTIALS, collected, make_run
from tests.loadgen.collect.virtual_platforms import VirtualApi, VirtualCluster, collect
from traces.clock import EndpointClock
from traces.manifest import Manifest
from traces.run import RunDir
from traces.schema import TABLES

SEEDS = range(3)
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


SCALED_OBJECT = {
    "metadata": {"name": "scaler", "uid": "so-1", "annotations": {"note": "a note"}},
    "spec": {
        "scaleTargetRef": {"name": "demo"},
        "maxReplicaCount": 4,
        "triggers": [
            {
                "type": "prometheus",
                "metadata": {"serverAddress": "http://prometheus", "query": "sum(waiting)", "threshold": "5"},
                "authenticationRef": {"name": "prometheus-login"},
            }
        ],
    },
    "status": {"conditions": [{"type": "Ready", "message": "ScaledObject is defined correctly"}]},
}
LOG = (
    "2027-01-15T08:00:30.000000Z INFO Starting to load model /model",
    "2027-01-15T08:00:31.000000Z INFO Received request: prompt: 'hello'",
)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every answer of the emulated platforms with secrets planted in it."""
    call, get, watch = VirtualApi.call, VirtualCluster.get, VirtualCluster.watch

    async def leaky_call(self: Any, operation: str, **parameters: Any) -> Answer:
        told = await call(self, operation, **parameters)
        return told._replace(data=plant(told.data, aws_shape(self.service, operation)))

    async def leaky_get(self: Any, path: str, query: Mapping[str, str] | None = None) -> Answer:
        kind = path.rpartition("/")[2]
        if kind == "scaledobjects":
            listed = {"metadata": {"resourceVersion": "1"}, "items": [SCALED_OBJECT]}
            told = Answer(listed, self._world.present_us, self._world.present_us)
        else:
            told = await get(self, path, query)
        if "items" not in told.data:
            return told
        items = [plant(item, kube_shape(kind)) for item in told.data["items"]]
        return told._replace(data={**told.data, "items": items})

    async def leaky_watch(self: Any, path: str, query: Mapping[str, str]) -> AsyncIterator[Answer]:
        async for told in watch(self, path, query):
            changed = plant(told.data["object"], kube_shape(path.rpartition("/")[2]))
            yield told._replace(data={**told.data, "object": changed})

    async def leaky_text(self: Any, path: str, query: Mapping[str, str]) -> tuple[str, int, int]:
        return "\n".join(f"{line} {SECRET}-log" for line in LOG), self._world.present_us, self._world.present_us

    monkeypatch.setattr(VirtualApi, "call", leaky_call)
    monkeypatch.setattr(VirtualCluster, "get", leaky_get)
    monkeypatch.setattr(VirtualCluster, "watch", leaky_watch)
    monkeypatch.setattr(VirtualCluster, "text", leaky_text)
    return


EXPECTED = {"ecs": "in_service", "ec2": "in_service", "kubernetes": "pull_finished"}


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("platform", EXPECTED)
def test_no_field_of_a_platform_leaks(platform: str, tmp_path: Path) -> None:
    """A whole scale-out, each field of each answer holding a secret; the run directory holds none."""
    anchors, sources = set(), set()
    run = RunDir.create(tmp_path / "run", Manifest(run_id="r", created_us=1, clock=EndpointClock()))
    journal = Journal(run)
    for seed in SEEDS:
        found = collect(platform, seed)
        journal.take(Reading(list(found.rows.values()), snapshots=found.snapshots), platform)
        for failure in found.failures:
            journal.add("gaps", gap("any", failure.reason, 1, None, str(failure)))
        anchors |= {row["anchor"] for row in found.rows.values()}
        sources |= {source for source, _ in found.rows}
    journal.write(journal.cut())
    assert {"decision", EXPECTED[platform]} <= anchors
    assert any(name.endswith(("-last", "scaler")) for name in run.snapshots())
    written = _everything(run)
    leaks = sorted(set(re.findall(rf"{SECRET}[\w./-]*", written)))
    assert not leaks, "\n".join(leaks)


REFUSAL = f"User {SECRET}-user with token {SECRET}-token may not describe {SECRET}-thing"


def test_no_message_of_a_refusal_leaks() -> None:
    """What a service says when it refuses, in the words that rows, the terminal and the log get."""
    answer = {"Error": {"Code": "AccessDeniedException", "Message": REFUSAL}, "ResponseMetadata": {}}
    aws = str(typed(ClientError(answer, "DescribeEndpoint"), "sagemaker describe_endpoint"))
    kube = str(refused(403, REFUSAL, "/api/v1/namespaces/default/pods"))
    assert SECRET not in aws + kube
    assert "AccessDeniedException" in aws
    assert "may not describe" in kube
