"""Every operation of the emulated platform, read by the client that the collector uses, after one whole scale-out."""

import asyncio
import json
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import aiobotocore.session
import polars as pl
import pytest
from aiobotocore.config import AioConfig
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.emulators import start_emulator

CREDENTIALS = ("EMULATEDKEY", "emulated-secret")
RESOURCE = "endpoint/demo/variant/AllTraffic"
GROUP = "/aws/sagemaker/Endpoints/demo"
DIMENSIONS = [{"Name": "EndpointName", "Value": "demo"}, {"Name": "VariantName", "Value": "AllTraffic"}]
TIME_SCALE = 200

pytestmark = pytest.mark.e2e


class Burst:
    """An emulator that has been through a burst and the scale-out it caused."""

    def __init__(self, url, truth=None):
        self.url = url
        self.truth = truth

    def state(self):
        with urllib.request.urlopen(f"{self.url}/_ramptrace/state") as response:
            return json.load(response)

    async def send(self, count, tokens):
        import aiohttp

        body = json.dumps({"messages": [{"role": "user", "content": "x" * 400}], "max_tokens": tokens})

        async def one(session):
            async with session.post(f"{self.url}/v1/chat/completions", data=body) as response:
                await response.read()
                return response.status

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            return await asyncio.gather(*(one(session) for _ in range(count)))

    def scale_out(self):
        statuses = asyncio.run(self.send(60, 400))
        assert set(statuses) == {200, 503}
        deadline = time.monotonic() + 20
        while self.state()["current"] < 3:
            assert time.monotonic() < deadline, self.state()
            time.sleep(0.05)
        time.sleep(10 / TIME_SCALE)  # what lags behind by seconds of endpoint time has arrived

    def call(self, service, operation, *, credentials=CREDENTIALS, **members):
        async def answer():
            session = aiobotocore.session.get_session()
            config = AioConfig(retries={"total_max_attempts": 1}, parameter_validation=True)
            key, secret = credentials
            async with session.create_client(
                service,
                region_name="us-east-1",
                endpoint_url=self.url,
                aws_access_key_id=key,
                aws_secret_access_key=secret,
                config=config,
            ) as client:
                return await getattr(client, operation)(**members)

        return asyncio.run(answer())

    def pages(self, service, operation, results, token="NextToken", **members):
        found, calls, more = [], 0, {}
        while True:
            answer = self.call(service, operation, **members, **more)
            calls += 1
            found += answer[results]
            if not answer.get(token):
                return found, calls
            more = {token: answer[token]}

    def promql(self, path, *, secret=CREDENTIALS[1], data=None):
        request = AWSRequest(method="POST" if data else "GET", url=self.url + path, data=data)
        if data:
            request.headers["Content-Type"] = "application/x-www-form-urlencoded"
        SigV4Auth(Credentials(CREDENTIALS[0], secret), "monitoring", "us-east-1").add_auth(request)
        plain = urllib.request.Request(
            request.url, data=data and data.encode(), headers=dict(request.headers.items()), method=request.method
        )
        with urllib.request.urlopen(plain) as response:
            return json.load(response)


@pytest.fixture(scope="module")
def burst(tmp_path_factory):
    truth = tmp_path_factory.mktemp("truth") / "truth.parquet"
    with start_emulator(time_scale=TIME_SCALE, image_cache=False, credentials=CREDENTIALS, truth=truth) as url:
        emulated = Burst(url, truth)
        emulated.scale_out()
        yield emulated


def scale_out_of(burst):
    answer = burst.call(
        "application-autoscaling", "describe_scaling_activities", ServiceNamespace="sagemaker", ResourceId=RESOURCE
    )
    return next(a for a in answer["ScalingActivities"] if "3" in a["Description"])


def test_describe_endpoint(burst):
    answer = burst.call("sagemaker", "describe_endpoint", EndpointName="demo")
    (variant,) = answer["ProductionVariants"]
    assert variant["VariantName"] == "AllTraffic"
    assert variant["CurrentInstanceCount"] in {1, 2, 3}
    assert answer["EndpointStatus"] in {"InService", "Updating"}
    assert answer["CreationTime"].tzinfo is not None
    assert variant["RoutingConfig"] == {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}


def test_describe_endpoint_while_updating():
    with start_emulator(time_scale=50) as url:
        fresh = Burst(url)
        load = fresh.send(60, 400)

        async def watch():
            sending = asyncio.create_task(load)
            while not (await asyncio.to_thread(fresh.state))["updating"]:
                await asyncio.sleep(0.02)
            await sending

        asyncio.run(watch())
        answer = fresh.call("sagemaker", "describe_endpoint", EndpointName="demo")
        (variant,) = answer["ProductionVariants"]
        assert answer["EndpointStatus"] == "Updating"
        assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (1, 3)
        (status,) = variant["VariantStatus"]
        assert (status["Status"], status["StatusMessage"]) == ("Updating", "Launching 2 instance(s).")
        (activity,) = fresh.call(
            "application-autoscaling", "describe_scaling_activities", ServiceNamespace="sagemaker"
        )["ScalingActivities"]
        assert activity["StatusCode"] == "InProgress"
        assert "EndTime" not in activity
        assert status["StartTime"] - activity["StartTime"] == timedelta(milliseconds=300)


def test_an_unknown_endpoint(burst):
    with pytest.raises(ClientError, match="Could not find endpoint") as caught:
        burst.call("sagemaker", "describe_endpoint", EndpointName="other")
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_describe_endpoint_config_and_model(burst):
    name = burst.call("sagemaker", "describe_endpoint", EndpointName="demo")["EndpointConfigName"]
    config = burst.call("sagemaker", "describe_endpoint_config", EndpointConfigName=name)
    (variant,) = config["ProductionVariants"]
    assert variant["InstanceType"] == "ml.g6.2xlarge"
    assert config["MetricsConfig"]["EnableDetailedObservability"] is True
    model = burst.call("sagemaker", "describe_model", ModelName=variant["ModelName"])
    assert model["PrimaryContainer"]["ModelDataSource"]["S3DataSource"]["S3DataType"] == "S3Prefix"
    assert "HF_TOKEN" in model["PrimaryContainer"]["Environment"]


def test_list_endpoints(burst):
    assert [e["EndpointName"] for e in burst.call("sagemaker", "list_endpoints")["Endpoints"]] == ["demo"]
    assert burst.call("sagemaker", "list_endpoints", NameContains="other")["Endpoints"] == []


def test_describe_scalable_targets(burst):
    answer = burst.call("application-autoscaling", "describe_scalable_targets", ServiceNamespace="sagemaker")
    (target,) = answer["ScalableTargets"]
    assert (target["MinCapacity"], target["MaxCapacity"], target["ResourceId"]) == (1, 3, RESOURCE)
    assert target["ScalableDimension"] == "sagemaker:variant:DesiredInstanceCount"
    other = burst.call("application-autoscaling", "describe_scalable_targets", ServiceNamespace="ecs")
    assert other["ScalableTargets"] == []


def test_describe_scaling_policies_and_their_alarms(burst):
    answer = burst.call("application-autoscaling", "describe_scaling_policies", ServiceNamespace="sagemaker")
    (policy,) = answer["ScalingPolicies"]
    tracking = policy["TargetTrackingScalingPolicyConfiguration"]
    assert tracking["TargetValue"] == 4
    assert tracking["PredefinedMetricSpecification"]["PredefinedMetricType"] == (
        "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    )
    names = [alarm["AlarmName"] for alarm in policy["Alarms"]]
    alarms = burst.call("cloudwatch", "describe_alarms", AlarmNames=names)["MetricAlarms"]
    high, low = sorted(alarms, key=lambda alarm: alarm["AlarmName"])
    assert high["AlarmName"].startswith(f"TargetTracking-{RESOURCE}-AlarmHigh-")
    assert (high["Period"], high["EvaluationPeriods"], high["Threshold"]) == (10, 3, 4)
    assert (low["Period"], low["EvaluationPeriods"], low["ComparisonOperator"]) == (60, 15, "LessThanThreshold")
    assert high["Dimensions"] == DIMENSIONS
    assert high["AlarmActions"] == [policy["PolicyARN"]]


def test_describe_scaling_activities(burst):
    activity = scale_out_of(burst)
    assert activity["Description"] == "Setting desired instance count to 3."
    assert activity["StatusCode"] == "Successful"
    assert activity["StatusMessage"].endswith("Change successfully fulfilled by sagemaker.")
    assert (activity["EndTime"] - activity["StartTime"]).total_seconds() == pytest.approx(525.5, rel=0.01)
    everything, calls = burst.pages(
        "application-autoscaling",
        "describe_scaling_activities",
        "ScalingActivities",
        ServiceNamespace="sagemaker",
        IncludeNotScaledActivities=True,
        MaxResults=1,
    )
    assert calls >= 2
    assert len({a["ActivityId"] for a in everything}) == len(everything) >= 2
    starts = [a["StartTime"] for a in everything]
    assert starts == sorted(starts, reverse=True)
    refused = [a for a in everything if "NotScaledReasons" in a]
    assert {"Code": "AlreadyAtMinCapacity", "MinCapacity": 1} in [a["NotScaledReasons"][0] for a in refused]
    with pytest.raises(ClientError) as caught:
        burst.call(
            "application-autoscaling", "describe_scaling_activities", ServiceNamespace="sagemaker", NextToken="x"
        )
    assert caught.value.response["Error"]["Code"] == "InvalidNextTokenException"


def test_the_truth_is_what_the_platform_tells_only_finer(burst):
    activity = scale_out_of(burst)
    deadline = time.monotonic() + 10
    while (truth := pl.read_parquet(burst.truth).filter(scaling_id=activity["ActivityId"])).is_empty():
        assert time.monotonic() < deadline, "the truth file is written every two seconds"
        time.sleep(0.2)
    at = dict(truth.group_by("anchor").agg(pl.col("at").max()).iter_rows())
    millisecond = timedelta(milliseconds=1)
    assert timedelta(0) <= at["decision"] - activity["StartTime"] < millisecond
    assert abs(at["in_service"] + timedelta(milliseconds=500) - activity["EndTime"]) < millisecond
    assert (at["in_service"] - at["decision"]).total_seconds() == pytest.approx(525, rel=0.01)
    assert at["breach"] < at["alarm"] < at["decision"] < at["launched"] < at["download_finished"] < at["pull_finished"]
    assert truth.filter(anchor="ready")["unit_id"].n_unique() == 2


def test_describe_alarm_history(burst):
    activity = scale_out_of(burst)
    name = activity["Cause"].split()[2]
    items, calls = burst.pages(
        "cloudwatch", "describe_alarm_history", "AlarmHistoryItems", AlarmName=name, MaxRecords=1
    )
    assert calls == len(items) >= 2
    stamps = [item["Timestamp"] for item in items]
    assert stamps == sorted(stamps, reverse=True)
    turned = next(i for i in items if i["HistorySummary"] == "Alarm updated from OK to ALARM")
    state = json.loads(turned["HistoryData"])["newState"]
    data = state["stateReasonData"]
    assert data["period"] == 10
    assert len(data["evaluatedDatapoints"]) == 3
    assert all(point["value"] > 4 for point in data["evaluatedDatapoints"])
    queried = datetime.strptime(data["queryDate"], "%Y-%m-%dT%H:%M:%S.%f%z")
    assert queried == turned["Timestamp"]
    assert activity["StartTime"] - queried == timedelta(seconds=1.2)
    actions = burst.call("cloudwatch", "describe_alarm_history", AlarmName=name, HistoryItemType="Action")
    assert "scalingPolicy" in actions["AlarmHistoryItems"][0]["HistorySummary"]


def metric_query(name="ConcurrentRequestsPerModel", period=10, stat="Maximum", query="q"):
    metric = {"Namespace": "AWS/SageMaker", "MetricName": name, "Dimensions": DIMENSIONS}
    return {"Id": query, "MetricStat": {"Metric": metric, "Period": period, "Stat": stat}}


def test_get_metric_data(burst):
    activity = scale_out_of(burst)
    window = {"StartTime": activity["StartTime"] - timedelta(seconds=90), "EndTime": activity["StartTime"]}
    answer = burst.call("cloudwatch", "get_metric_data", MetricDataQueries=[metric_query()], **window)
    (result,) = answer["MetricDataResults"]
    assert result["StatusCode"] == "Complete"
    assert result["Timestamps"] == sorted(result["Timestamps"], reverse=True)
    assert all(stamp.second % 10 == 0 and stamp.microsecond == 0 for stamp in result["Timestamps"])
    assert max(result["Values"]) > 4
    minute = metric_query(period=60, stat="Average", query="m")
    calls = [metric_query(), minute, metric_query("Invocations", 60, "Sum", "i"), metric_query("Nothing", query="n")]
    whole = {"StartTime": activity["StartTime"] - timedelta(minutes=15), "EndTime": activity["StartTime"]}
    paged, count = {}, 0
    token = {}
    while True:
        answer = burst.call(
            "cloudwatch", "get_metric_data", MetricDataQueries=calls, MaxDatapoints=40, **whole, **token
        )
        count += 1
        for found in answer["MetricDataResults"]:
            paged.setdefault(found["Id"], []).extend(found["Values"])
        if "NextToken" not in answer:
            break
        token = {"NextToken": answer["NextToken"]}
    assert count >= 2
    assert len(paged["q"]) >= 80
    assert sum(paged["i"]) == 60
    assert paged["n"] == []
    with pytest.raises(ClientError, match="Stat"):
        burst.call("cloudwatch", "get_metric_data", MetricDataQueries=[metric_query(stat="p99")], **whole)


def test_list_metrics(burst):
    metrics = burst.call("cloudwatch", "list_metrics", Namespace="AWS/SageMaker")["Metrics"]
    assert {"ConcurrentRequestsPerModel", "Invocations"} <= {metric["MetricName"] for metric in metrics}
    assert metrics[0]["Dimensions"] == DIMENSIONS
    assert burst.call("cloudwatch", "list_metrics", Namespace="AWS/EC2")["Metrics"] == []


def test_describe_log_groups_and_streams(burst):
    (group,) = burst.call("logs", "describe_log_groups", logGroupNamePrefix="/aws/sagemaker/")["logGroups"]
    assert group["logGroupName"] == GROUP
    streams, calls = burst.pages(
        "logs", "describe_log_streams", "logStreams", token="nextToken", logGroupName=GROUP, limit=2
    )
    assert calls == 2
    assert len(streams) == 3
    assert all(stream["logStreamName"].startswith("AllTraffic/i-") for stream in streams)
    for stream in streams:
        assert stream["firstEventTimestamp"] < stream["creationTime"] < stream["lastIngestionTime"]
    newest = burst.call("logs", "describe_log_streams", logGroupName=GROUP, orderBy="LastEventTime", descending=True)
    last = [stream["lastEventTimestamp"] for stream in newest["logStreams"]]
    assert last == sorted(last, reverse=True)
    with pytest.raises(ClientError) as caught:
        burst.call("logs", "describe_log_streams", logGroupName="/other")
    assert caught.value.response["Error"]["Code"] == "ResourceNotFoundException"


def test_get_log_events(burst):
    newest = burst.call("logs", "describe_log_streams", logGroupName=GROUP, orderBy="LastEventTime", descending=True)
    stream = newest["logStreams"][0]
    asked = {"logGroupName": GROUP, "logStreamName": stream["logStreamName"], "startFromHead": True, "limit": 5}
    lines, token = [], {}
    while True:
        answer = burst.call("logs", "get_log_events", **asked, **token)
        lines += answer["events"]
        if token.get("nextToken") == answer["nextForwardToken"]:
            break
        token = {"nextToken": answer["nextForwardToken"]}
    assert lines[0]["timestamp"] == stream["firstEventTimestamp"]
    assert lines[0]["ingestionTime"] - lines[0]["timestamp"] == 1000
    assert any("Loading weights took 30.00 seconds" in line["message"] for line in lines)
    assert len(lines) == 14
    tail = burst.call("logs", "get_log_events", logGroupName=GROUP, logStreamName=stream["logStreamName"], limit=2)
    assert tail["events"] == lines[-2:]


def test_filter_log_events(burst):
    asked = {"logGroupName": GROUP, "filterPattern": '"Loading weights took" ?seconds', "limit": 1}
    events, calls = burst.pages("logs", "filter_log_events", "events", token="nextToken", **asked)
    assert calls == 3
    assert len({event["eventId"] for event in events}) == 3
    activity = scale_out_of(burst)
    since = round(activity["StartTime"].timestamp() * 1000)
    new = burst.call("logs", "filter_log_events", **{**asked, "limit": 100}, startTime=since)["events"]
    assert len({event["logStreamName"] for event in new}) == 2


def test_promql_gives_the_operation_metrics_of_each_instance(burst):
    from urllib.parse import quote

    found = burst.promql("/api/v1/label/__name__/values")
    assert {"container_start_time", "e2e_duration", "gpu_load_time", "model_download_time"} <= set(found["data"])
    query = 'model_download_time{"aws.sagemaker.endpoint.name"="demo"}[1d]'
    for answer in (
        burst.promql(f"/api/v1/query?query={quote(query, safe='')}"),
        burst.promql("/api/v1/query", data=f"query={quote(query, safe='')}"),
    ):
        assert answer["status"] == "success"
        assert answer["data"]["resultType"] == "matrix"
        series = answer["data"]["result"]
        hosts = {found["metric"]["@resource.host.id"] for found in series}
        assert len(hosts) == len(series)
        contended = [found for found in series if float(found["values"][0][1]) > 100]
        assert len(contended) == 3, "the two new ones, and the first one's own start"
        for found in contended:
            assert float(found["values"][0][1]) == pytest.approx(168, abs=0.1)
    with pytest.raises(urllib.error.HTTPError) as caught:
        burst.promql("/api/v1/query?query=rate(x)")
    assert caught.value.code == 400
    assert json.load(caught.value)["errorType"] == "bad_data"


def test_a_wrong_signature_is_refused_in_each_protocols_own_shape(burst):
    wrong = (CREDENTIALS[0], "not-it")
    for service, operation, code in (
        ("sagemaker", "list_endpoints", "InvalidSignatureException"),
        ("logs", "describe_log_groups", "InvalidSignatureException"),
        ("cloudwatch", "describe_alarms", "SignatureDoesNotMatch"),
    ):
        with pytest.raises(ClientError) as caught:
            burst.call(service, operation, credentials=wrong)
        assert caught.value.response["Error"]["Code"] == code
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    with pytest.raises(ClientError) as caught:
        burst.call("sagemaker", "list_endpoints", credentials=("OTHERKEY", "not-it"))
    assert caught.value.response["Error"]["Code"] == "UnrecognizedClientException"
    with pytest.raises(urllib.error.HTTPError) as denied:
        burst.promql("/api/v1/query?query=x", secret="not-it")
    assert denied.value.code == 403
    assert json.load(denied.value)["status"] == "error"
    with pytest.raises(urllib.error.HTTPError) as unsigned:
        urllib.request.urlopen(f"{burst.url}/api/v1/label/__name__/values")
    assert unsigned.value.code == 403


def test_an_operation_that_is_not_there(burst):
    with pytest.raises(ClientError) as caught:
        burst.call("sagemaker", "list_models")
    assert caught.value.response["Error"]["Code"] == "UnknownOperationException"


def test_throttling_is_an_error_of_the_service(tmp_path):
    scenario = tmp_path / "faults.toml"
    scenario.write_text("[emulator_model.faults]\nthrottled_share = 1.0\n", encoding="utf-8")
    with start_emulator(scenario=scenario) as url:
        throttled = Burst(url)
        for service, operation, code in (
            ("sagemaker", "list_endpoints", "ThrottlingException"),
            ("cloudwatch", "describe_alarms", "Throttling"),
        ):
            with pytest.raises(ClientError) as caught:
                throttled.call(service, operation)
            assert caught.value.response["Error"]["Code"] == code


def test_endpoint_time_is_what_the_services_show(burst):
    with urllib.request.urlopen(f"{burst.url}/_ramptrace/clock") as response:
        reading = json.load(response)
        date = datetime.strptime(response.headers["Date"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    endpoint = datetime.fromtimestamp(reading["endpoint_us"] / 1e6, UTC)
    assert abs(date - endpoint) <= timedelta(seconds=2)
    assert endpoint - datetime.fromtimestamp(reading["client_us"] / 1e6, UTC) > timedelta(minutes=5)
