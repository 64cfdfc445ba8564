"""Failures are typed, messages redacted, offsets read from Date headers, the emulator's clock mapped."""

import asyncio
import time

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from loadgen.collect.aws import typed
from loadgen.collect.base import (
    DeniedError,
    ExpiredError,
    MalformedError,
    SourceError,
    SourceUnreachableError,
    ThrottledError,
)
from loadgen.collect.emulator_clock import read_endpoint_clock
from loadgen.collect.offsets import Offsets
from tests.loadgen.collect.fake_aws import FakeAws, Server
from traces.clock import ClientClock, EndpointClock


def client_error(code: str, status: int = 400) -> ClientError:
    answer = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "Op")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (client_error("ThrottlingException"), ThrottledError),
        (client_error("com.amazonaws.cloudwatch#Throttling"), ThrottledError),
        (client_error("TooManyRequestsException"), ThrottledError),
        (client_error("RequestLimitExceeded", 503), ThrottledError),
        (client_error("429", 429), ThrottledError),
        (client_error("AccessDeniedException"), DeniedError),
        (client_error("UnrecognizedClientException"), DeniedError),
        (client_error("403", 403), DeniedError),
        (client_error("ExpiredTokenException", 403), ExpiredError),
        (client_error("InternalFailure", 500), SourceUnreachableError),
        (client_error("503", 503), SourceUnreachableError),
        (client_error("ValidationException"), MalformedError),
        (EndpointConnectionError(endpoint_url="http://x"), SourceUnreachableError),
        (ConnectTimeoutError(endpoint_url="http://x"), SourceUnreachableError),
        (ReadTimeoutError(endpoint_url="http://x"), SourceUnreachableError),
        (NoCredentialsError(), ExpiredError),
        (ParamValidationError(report="r"), MalformedError),
        (ResponseParserError("bad"), MalformedError),
    ],
)
def test_what_botocore_raises_is_typed(error: Exception, kind: type[SourceError]) -> None:
    found = typed(error, "service op")
    assert type(found) is kind
    assert str(found).startswith("service op: ")


def test_offsets_are_in_endpoint_time() -> None:
    offsets = Offsets(EndpointClock(client_epoch_us=0, endpoint_epoch_us=1_000_000_000, time_scale=20))
    # At client second 10 the endpoint's clock shows 1000 s + 200 s; the header says 1203 s.
    offsets.read("logs", "Thu, 01 Jan 1970 00:20:03 GMT", 9_990_000, 10_000_000)
    offsets.read("logs", "not a date", 10_990_000, 11_000_000)
    offsets.read("sagemaker", None, 10_990_000, 11_000_000)
    assert offsets.drain() == {"logs": (3_000_000, 10_000_000)}
    assert offsets.drain() == {}


def test_the_emulators_clock() -> None:
    server = Server(FakeAws(time_scale=50))
    server.start()
    try:
        clock = ClientClock()
        found = asyncio.run(read_endpoint_clock(server.url, clock))
        assert found is not None
        assert found.time_scale == 50
        now_us = time.time_ns() // 1_000
        off_us = found.to_endpoint_us(now_us) - server.fake.clock.to_endpoint_us(now_us)
        # Both clocks are this machine's: they agree within the error that the reading states (and a rounding).
        assert abs(off_us) <= (found.error_us + 1_000) * 50
        assert asyncio.run(read_endpoint_clock(f"{server.url}/elsewhere", clock)) is None
    finally:
        server.stop()
