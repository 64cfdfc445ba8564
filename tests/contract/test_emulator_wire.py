"""CloudWatch in each protocol that botocore can speak to it, and the `aws` command against the emulator."""

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from datetime import UTC, datetime

import pytest
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from loadgen.emulator.wire import service_model
from tests.emulators import start_emulator

pytestmark = pytest.mark.e2e

CREDENTIALS = ("EMULATEDKEY", "emulated-secret")
DIMENSIONS = [{"Name": "EndpointName", "Value": "demo"}, {"Name": "VariantName", "Value": "AllTraffic"}]


@pytest.fixture(scope="module")
def url():
    with start_emulator(time_scale=20) as base:
        yield base


def call(url, protocol, name, **members):
    """Send a call as botocore would in a protocol; returns the status and what botocore reads from the answer."""
    model = service_model("cloudwatch")
    operation = model.operation_model(name)
    request = create_serializer(protocol).serialize_to_request(members, operation)
    body = request["body"]
    headers = dict(request["headers"])
    if isinstance(body, dict):
        body = "&".join(f"{key}={urllib.request.quote(str(value), safe='')}" for key, value in body.items())
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    raw = body.encode() if isinstance(body, str) else bytes(body)
    plain = urllib.request.Request(url + request["url_path"], data=raw, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(plain) as answer:
            response = {"body": answer.read(), "headers": answer.headers, "status_code": answer.status}
    except urllib.error.HTTPError as error:
        response = {"body": error.read(), "headers": error.headers, "status_code": error.code}
    return response["status_code"], create_parser(protocol).parse(response, operation.output_shape)


@pytest.mark.parametrize("protocol", ["smithy-rpc-v2-cbor", "json", "query"])
def test_cloudwatch_in_each_protocol(url, protocol):
    status, alarms = call(url, protocol, "DescribeAlarms", AlarmNamePrefix="TargetTracking-")
    assert status == 200
    high = next(alarm for alarm in alarms["MetricAlarms"] if "AlarmHigh" in alarm["AlarmName"])
    assert high["ActionsEnabled"] is True
    assert (high["Period"], high["Threshold"], high["StateValue"]) == (10, 4.0, "OK")
    assert high["StateUpdatedTimestamp"].tzinfo is not None
    _, history = call(url, protocol, "DescribeAlarmHistory", AlarmName=high["AlarmName"], MaxRecords=10)
    assert history["AlarmHistoryItems"][0]["Timestamp"] == high["StateUpdatedTimestamp"]
    assert json.loads(history["AlarmHistoryItems"][0]["HistoryData"])["newState"]["stateValue"] == "OK"
    metric = {"Namespace": "AWS/SageMaker", "MetricName": "ConcurrentRequestsPerModel", "Dimensions": DIMENSIONS}
    query = {"Id": "q", "MetricStat": {"Metric": metric, "Period": 10, "Stat": "Maximum"}}
    start = high["AlarmConfigurationUpdatedTimestamp"]
    end = datetime.fromtimestamp(start.timestamp() + 600, UTC)
    _, data = call(url, protocol, "GetMetricData", MetricDataQueries=[query], StartTime=start, EndTime=end)
    (result,) = data["MetricDataResults"]
    assert len(result["Timestamps"]) == len(result["Values"]) == 60
    assert set(result["Values"]) == {0.0}
    assert start <= result["Timestamps"][-1] < result["Timestamps"][0] < end
    _, metrics = call(url, protocol, "ListMetrics", MetricName="ConcurrentRequestsPerModel")
    assert metrics["Metrics"] == [metric]


@pytest.mark.parametrize("protocol", ["smithy-rpc-v2-cbor", "json", "query"])
def test_an_error_in_each_protocol(url, protocol):
    status, answer = call(url, protocol, "DescribeAlarmHistory", NextToken="nonsense")
    assert status == 400
    assert answer["Error"]["Code"] == "InvalidNextToken"
    assert answer["Error"]["Message"] == "The specified token is not valid."
    status, answer = call(url, protocol, "PutMetricData", Namespace="x", MetricData=[])
    assert (status, answer["Error"]["Code"]) == (400, "InvalidAction")


def test_a_call_that_names_no_service(url):
    for headers in ({"X-Amz-Target": "Other.Thing"}, {}):
        request = urllib.request.Request(url + "/", data=b"{}", headers=headers, method="POST")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request)
        assert caught.value.code == 400
        assert json.load(caught.value)["__type"] == "UnknownOperationException"


@pytest.fixture(scope="module")
def aws():
    command = shutil.which("aws")
    if command is None:
        pytest.skip("the aws command is not installed")
    with start_emulator(time_scale=20, credentials=CREDENTIALS) as base:
        import os

        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": CREDENTIALS[0],
            "AWS_SECRET_ACCESS_KEY": CREDENTIALS[1],
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_PAGER": "",
            "AWS_CONFIG_FILE": os.devnull,
        }
        # The command runs on an interpreter of its own, which must not see this one's packages.
        environment.pop("PYTHONPATH", None)

        def run(*arguments):
            done = subprocess.run(
                [command, "--endpoint-url", base, "--output", "json", *arguments],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        yield run


def test_the_aws_command_reads_the_endpoint_and_its_scaling(aws):
    endpoint = aws("sagemaker", "describe-endpoint", "--endpoint-name", "demo")
    assert endpoint["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    activities = aws(
        "application-autoscaling",
        "describe-scaling-activities",
        "--service-namespace",
        "sagemaker",
        "--include-not-scaled-activities",
    )["ScalingActivities"]
    assert activities[0]["NotScaledReasons"][0]["Code"] == "AlreadyAtMinCapacity"


def test_the_aws_command_reads_cloudwatch(aws):
    history = aws("cloudwatch", "describe-alarm-history", "--history-item-type", "StateUpdate")["AlarmHistoryItems"]
    assert {item["HistorySummary"] for item in history} == {
        "Alarm updated from INSUFFICIENT_DATA to OK",
        "Alarm updated from INSUFFICIENT_DATA to ALARM",
    }
    metric = {"Namespace": "AWS/SageMaker", "MetricName": "ConcurrentRequestsPerModel", "Dimensions": DIMENSIONS}
    query = [{"Id": "q", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Maximum"}}]
    endpoint = aws("sagemaker", "describe-endpoint", "--endpoint-name", "demo")
    created = datetime.fromtimestamp(endpoint["CreationTime"], UTC)
    data = aws(
        "cloudwatch",
        "get-metric-data",
        "--start-time",
        created.isoformat(),
        "--end-time",
        datetime.fromtimestamp(created.timestamp() + 600, UTC).isoformat(),
        "--metric-data-queries",
        json.dumps(query),
    )
    assert data["MetricDataResults"][0]["Values"]


def test_the_aws_command_reads_logs(aws):
    group = "/aws/sagemaker/Endpoints/demo"
    (stream,) = aws("logs", "describe-log-streams", "--log-group-name", group)["logStreams"]
    events = aws(
        "logs",
        "get-log-events",
        "--log-group-name",
        group,
        "--log-stream-name",
        stream["logStreamName"],
        "--start-from-head",
    )["events"]
    assert events[0]["message"] == "[INFO ] ModelServer - Starting model server ..."
