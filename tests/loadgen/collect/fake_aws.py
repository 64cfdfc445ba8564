"""A small stand-in for the AWS APIs that the collector reads, on loopback, in a thread of the test.

It speaks JSON 1.1, Smithy RPC v2 CBOR and the Prometheus envelope. Every answer is made up after botocore's service
models and the published documents; none is a capture of a real account.
"""

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from email.utils import formatdate
from typing import Any

import cbor2
from aiohttp import web

from traces.clock import EndpointClock, to_datetime, to_us

US = 1_000_000
ENDPOINT, VARIANT = "demo", "AllTraffic"
RESOURCE = f"endpoint/{ENDPOINT}/variant/{VARIANT}"
GROUP = f"/aws/sagemaker/Endpoints/{ENDPOINT}"
ALARM = f"TargetTracking-{RESOURCE}-AlarmHigh-0a1b"
SECRET = "hf_thisMustNeverBeWrittenAnywhere0000"
PROMPT = "the user's secret prompt"

Fault = Callable[[str], web.Response | str | None]


class FakeAws:
    """The state that the answers come from; tests change it while the server runs. Times are endpoint µs."""

    def __init__(self, time_scale: float = 1.0) -> None:
        now_us = time.time_ns() // 1_000
        self.clock = EndpointClock(client_epoch_us=now_us, endpoint_epoch_us=now_us, time_scale=time_scale)
        self.calls: Counter[str] = Counter()
        self.fault: Fault = lambda operation: None
        self.current, self.desired, self.status = 1, 1, "InService"
        self.variant_status: list[dict[str, Any]] = []
        self.activities: list[dict[str, Any]] = []
        self.history: list[dict[str, Any]] = []
        self.streams: dict[str, list[tuple[int, str]]] = {}
        self.metrics: dict[str, list[tuple[int, float]]] = {}
        self.prom: dict[str, list[dict[str, Any]]] = {}

    def now_us(self) -> int:
        return self.clock.to_endpoint_us(time.time_ns() // 1_000)

    # sagemaker

    def describe_endpoint(self, asked: dict[str, Any]) -> Any:
        if asked["EndpointName"] != ENDPOINT:
            return error(400, "ValidationException", f'Could not find endpoint "{asked["EndpointName"]}".')
        variant = {
            "VariantName": VARIANT,
            "CurrentInstanceCount": self.current,
            "DesiredInstanceCount": self.desired,
            "VariantStatus": self.variant_status,
        }
        return {
            "EndpointName": ENDPOINT,
            "EndpointConfigName": "demo-config",
            "EndpointStatus": self.status,
            "ProductionVariants": [variant],
        }

    def describe_endpoint_config(self, asked: dict[str, Any]) -> Any:
        return {
            "EndpointConfigName": asked["EndpointConfigName"],
            "ProductionVariants": [{"VariantName": VARIANT, "ModelName": "m", "InstanceType": "ml.g6.2xlarge"}],
        }

    def describe_model(self, asked: dict[str, Any]) -> Any:
        environment = {"HF_TOKEN": SECRET, "OPTION_DTYPE": "bf16", "DB_URL": "postgres://u:p@h"}
        return {"ModelName": asked["ModelName"], "PrimaryContainer": {"Image": "x/y:1", "Environment": environment}}

    def list_endpoints(self, asked: dict[str, Any]) -> Any:
        return {"Endpoints": [{"EndpointName": ENDPOINT}]}

    # application auto scaling

    def describe_scalable_targets(self, asked: dict[str, Any]) -> Any:
        return {"ScalableTargets": [{"ResourceId": RESOURCE, "MinCapacity": 1, "MaxCapacity": 4}]}

    def describe_scaling_policies(self, asked: dict[str, Any]) -> Any:
        return {"ScalingPolicies": [{"PolicyName": "p", "Alarms": [{"AlarmName": ALARM, "AlarmARN": "arn:x"}]}]}

    def describe_scaling_activities(self, asked: dict[str, Any]) -> Any:
        newest_first = sorted(self.activities, key=lambda a: a["StartTime"], reverse=True)
        at = int(asked.get("NextToken", 0))
        page: dict[str, Any] = {"ScalingActivities": newest_first[at : at + 2]}
        return page | ({"NextToken": str(at + 2)} if at + 2 < len(newest_first) else {})

    # cloudwatch

    def describe_alarms(self, asked: dict[str, Any]) -> Any:
        alarm = {"AlarmName": ALARM, "Period": 10, "Threshold": 5.0, "ComparisonOperator": "GreaterThanThreshold"}
        return {"MetricAlarms": [alarm], "CompositeAlarms": []}

    def describe_alarm_history(self, asked: dict[str, Any]) -> Any:
        return {"AlarmHistoryItems": [h for h in self.history if h["AlarmName"] == asked["AlarmName"]]}

    def get_metric_data(self, asked: dict[str, Any]) -> Any:
        results = []
        start, end = (
            at if isinstance(at, datetime) else to_datetime(int(at * US))
            for at in (asked["StartTime"], asked["EndTime"])
        )
        for query in asked["MetricDataQueries"]:
            stat = query["MetricStat"]
            points = [
                (to_datetime(at), value)
                for at, value in self.metrics.get(stat["Metric"]["MetricName"], [])
                if start <= to_datetime(at) < end
            ]
            stamps, values = [p[0] for p in points], [p[1] for p in points]
            results.append({"Id": query["Id"], "Timestamps": stamps, "Values": values, "StatusCode": "Complete"})
        return {"MetricDataResults": results}

    # logs

    def describe_log_streams(self, asked: dict[str, Any]) -> Any:
        if not self.streams:
            return error(400, "ResourceNotFoundException", "The specified log group does not exist.")
        listed = [
            {"logStreamName": n, "creationTime": e[0][0] // 1000 + 700, "lastEventTimestamp": e[-1][0] // 1000}
            for n, e in self.streams.items()
        ]
        return {"logStreams": listed}

    def get_log_events(self, asked: dict[str, Any]) -> Any:
        events = self.streams[asked["logStreamName"]]
        page = [{"timestamp": at // 1000, "message": m, "ingestionTime": at // 1000 + 900} for at, m in events]
        # The first page is empty but has a token, as the service may do.
        if "nextToken" not in asked:
            return {"events": [], "nextForwardToken": "f/1", "nextBackwardToken": "b/1"}
        return {"events": page[: asked["limit"]], "nextForwardToken": "f/2", "nextBackwardToken": "b/2"}

    def filter_log_events(self, asked: dict[str, Any]) -> Any:
        events = [
            {"logStreamName": name, "timestamp": at // 1000, "message": message, "eventId": f"{name}#{number}"}
            for name in asked["logStreamNames"]
            for number, (at, message) in enumerate(self.streams[name])
            if at // 1000 >= asked["startTime"]
        ]
        return {"events": events}


def error(status: int, code: str, message: str = "made up") -> web.Response:
    body = json.dumps({"__type": code, "message": message})
    return web.Response(status=status, text=body, content_type="application/x-amz-json-1.1")


def cbor_error(status: int, code: str, message: str = "made up") -> web.Response:
    body = cbor2.dumps({"__type": f"com.amazonaws.cloudwatch#{code}", "message": message})
    return web.Response(
        status=status, body=body, headers={"smithy-protocol": "rpc-v2-cbor"}, content_type="application/cbor"
    )


def _snake(operation: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in operation).lstrip("_")


def _epoch(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_us(value) / US
    raise TypeError(value)


class Server:
    """Serves a `FakeAws` from a thread; can vanish and come back at the same port."""

    def __init__(self, fake: FakeAws) -> None:
        self.fake = fake
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._done = asyncio.Event()

        async def serve() -> None:
            runner = web.AppRunner(self._app(), handle_signals=False, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True).start()
            up.set()
            await self._done.wait()
            await runner.cleanup()

        def run() -> None:
            self._loop.run_until_complete(serve())
            self._loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert up.wait(10)

    def stop(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._done.set)
            self._thread.join(10)
            self._thread = None

    def _app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/_ramptrace/clock", self._clock)
        app.router.add_post("/service/GraniteServiceVersion20100801/operation/{operation}", self._cbor)
        app.router.add_get("/api/v1/label/__name__/values", self._names)
        app.router.add_get("/api/v1/query", self._query)
        app.router.add_post("/", self._json)
        return app

    def _date(self) -> dict[str, str]:
        return {"Date": formatdate(self.fake.now_us() / US, usegmt=True)}

    def _answer(self, operation: str, asked: dict[str, Any]) -> Any:
        self.fake.calls[operation] += 1
        return self.fake.fault(operation) or getattr(self.fake, _snake(operation))(asked)

    async def _clock(self, request: web.Request) -> web.Response:
        now_us = time.time_ns() // 1_000
        scale = self.fake.clock.time_scale
        body = {"emulated": True, "endpoint_us": self.fake.clock.to_endpoint_us(now_us), "client_us": now_us}
        return web.json_response(body | {"time_scale": scale})

    async def _json(self, request: web.Request) -> web.Response:
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        answer = self._answer(operation, json.loads(await request.read()))
        if isinstance(answer, web.Response):
            return answer
        text = answer if isinstance(answer, str) else json.dumps(answer, default=_epoch)
        return web.Response(text=text, content_type="application/x-amz-json-1.1", headers=self._date())

    async def _cbor(self, request: web.Request) -> web.Response:
        answer = self._answer(request.match_info["operation"], cbor2.loads(await request.read()))
        if isinstance(answer, web.Response):
            return answer
        body = answer.encode() if isinstance(answer, str) else cbor2.dumps(answer, datetime_as_timestamp=True)
        headers = {"smithy-protocol": "rpc-v2-cbor", **self._date()}
        return web.Response(body=body, content_type="application/cbor", headers=headers)

    async def _names(self, request: web.Request) -> web.Response:
        return self._prom("names", request, sorted(self.fake.prom))

    async def _query(self, request: web.Request) -> web.Response:
        name = request.query["query"].partition("{")[0]
        return self._prom("query", request, {"resultType": "matrix", "result": self.fake.prom[name]})

    def _prom(self, operation: str, request: web.Request, data: Any) -> web.Response:
        self.fake.calls[operation] += 1
        assert request.headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=")
        assert "/monitoring/aws4_request" in request.headers["Authorization"]
        answer = self.fake.fault(operation)
        if isinstance(answer, web.Response):
            return answer
        text = answer if isinstance(answer, str) else json.dumps({"status": "success", "data": data})
        return web.Response(text=text, content_type="application/json", headers=self._date())


def tell_a_scale_out(fake: FakeAws, begin_us: int) -> None:
    """Put a scale-out from 1 to 2 instances into the fake, its decision at `begin_us`; the counts stay as they are."""
    began, ended = to_datetime(begin_us), to_datetime(begin_us + 525 * US)
    fake.activities.append(
        {
            "ActivityId": "a-1",
            "Description": "Setting desired instance count to 2.",
            "Cause": f"monitor alarm {ALARM} in state ALARM triggered policy p",
            "StartTime": began,
            "EndTime": ended,
            "StatusCode": "Successful",
            "StatusMessage": "Change successfully fulfilled by sagemaker.",
            "ServiceNamespace": "sagemaker",
            "ResourceId": RESOURCE,
            "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        }
    )
    fake.history.append(history_item(begin_us - 2 * US, [(begin_us - 30 * US, 8.0), (begin_us - 20 * US, 9.0)]))
    fake.streams[f"{VARIANT}/i-new"] = [
        (begin_us + 453 * US, "INFO 06-30 10:03:59 [api_server.py:1] vLLM API server version 0.14.0"),
        (
            begin_us + 460 * US,
            "(EngineCore_DP0 pid=9) INFO 06-30 10:04:07 [a.py:2] Starting to load model /opt/ml/model...",
        ),
        (begin_us + 461 * US, f"INFO received: {PROMPT}"),
        (begin_us + 490 * US, "(EngineCore_DP0 pid=9) INFO 06-30 10:04:37 [a.py:3] Loading weights took 30.00 seconds"),
        (begin_us + 525 * US, "(APIServer pid=1) INFO:     Application startup complete."),
    ]
    at_ten = begin_us - begin_us % (10 * US)
    fake.metrics["ConcurrentRequestsPerModel"] = [(at_ten - 20 * US, 4.0), (at_ten - 10 * US, 9.0)]
    labels = {"aws.sagemaker.endpoint.name": ENDPOINT, "@resource.host.id": "i-new"}
    stamp = (begin_us + 453 * US) / US
    fake.prom["model_download_time"] = [{"metric": {"__name__": "x", **labels}, "values": [[stamp, "168.25"]]}]
    labels |= {"aws.sagemaker.scaling.direction": "ScaleOut"}
    fake.prom["E2EScalingLatency"] = [{"metric": labels, "values": [[(begin_us + 525 * US) / US, "525"]]}]


def history_item(at_us: int, points: list[tuple[int, float]], state: str = "ALARM") -> dict[str, Any]:
    text = lambda us: to_datetime(us).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "+0000"  # noqa: E731
    reason = {
        "version": "1.0",
        "queryDate": text(at_us),
        "startDate": text(points[0][0]) if points else None,
        "statistic": "Maximum",
        "period": 10,
        "threshold": 5.0,
        "evaluatedDatapoints": [{"timestamp": text(at), "value": value} for at, value in points],
    }
    data = {
        "version": "1.0",
        "oldState": {"stateValue": "OK"},
        "newState": {"stateValue": state, "stateReasonData": reason},
    }
    return {
        "AlarmName": ALARM,
        "AlarmType": "MetricAlarm",
        "Timestamp": to_datetime(at_us),
        "HistoryItemType": "StateUpdate",
        "HistorySummary": f"Alarm updated from OK to {state}",
        "HistoryData": json.dumps(data),
    }
