"""SageMaker real-time endpoints: InvokeEndpoint and InvokeEndpointWithResponseStream, with a dialect's body.

Signatures, credentials, regions and event-stream frames are botocore's; the bytes go over the replay's own client,
because botocore's hides 429 and 503 behind retries and ten connections.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from botocore.eventstream import EventStreamBuffer, ParserError

from loadgen.endpoints.answers import ErrorBody
from loadgen.endpoints.base import Body, Headers, Reply, header_text, parse_target, safe_word
from loadgen.endpoints.dialect import Dialect
from loadgen.endpoints.sigv4 import Signer
from loadgen.plan import PlannedRequest
from loadgen.scenario import TargetSection

_UNIT = re.compile(r"(?:^|[;,\s])unit_id=([A-Za-z0-9_.:-]{1,64})")


class SageMakerEndpoint:
    """Invokes one endpoint by name, or one inference component of it, streamed or whole."""

    kind = "sagemaker"

    def __init__(self, section: TargetSection, dialect: Dialect) -> None:
        self._signer = Signer("sagemaker", section.region)
        self.url = section.url or self._signer.address("sagemaker-runtime")
        self.target = parse_target(self.url)
        self._dialect = dialect
        self._stream = section.stream
        operation = "invocations-response-stream" if section.stream else "invocations"
        self.path = f"{self.target.path}/endpoints/{quote(section.endpoint_name or '', safe='')}/{operation}"
        self.label = section.inference_component or section.endpoint_name or self.path
        self._headers = {"Content-Type": "application/json"}
        if section.inference_component:
            self._headers["X-Amzn-SageMaker-Inference-Component"] = section.inference_component

    def refresh(self) -> None:
        """Renew the credentials where their provider says so."""
        self._signer.refresh()

    def prepare(self, request: PlannedRequest) -> bytes:
        """Return the whole signed HTTP request."""
        return self._signer.signed(self.target, self.path, self._dialect.body(request), self._headers)

    def open(self, status: int, headers: Headers, reply: Reply) -> Body:
        """Return the decoder for an answer with this head."""
        attributes = header_text(headers, "x-amzn-sagemaker-custom-attributes") or ""
        unit = _UNIT.search(attributes)
        reply.unit_id = unit[1] if unit else safe_word(header_text(headers, "x-ramptrace-unit"))
        if not 200 <= status < 300:
            error_type = (header_text(headers, "x-amzn-errortype") or "").partition(":")[0]
            return ErrorBody(reply, status, safe_word(error_type))
        if not self._stream:
            return self._dialect.decoder(reply, header_text(headers, "content-type") or "")
        content_type = header_text(headers, "x-amzn-sagemaker-content-type") or ""
        return FramedStream(reply, self._dialect.decoder(reply, content_type))


class FramedStream:
    """Decodes event-stream frames whose payload parts hold the bytes of a dialect's answer.

    A part may end anywhere inside an event. An exception or error frame is a failure, although the status was 200.
    """

    def __init__(self, reply: Reply, body: Body) -> None:
        self._reply = reply
        self._frames = EventStreamBuffer()
        self._body = body
        self._broken = False

    def feed(self, data: bytes, at_us: int) -> None:
        """Take a piece of the framed body."""
        if self._broken:
            return
        self._frames.add_data(data)
        try:
            for message in self._frames:
                self._take(message, at_us)
        except ParserError:
            self._broken = True
            self._reply.fail("malformed_frame", "the body is not an event stream")

    def close(self) -> None:
        """Take the body's end."""
        self._body.close()

    def _take(self, message: Any, at_us: int) -> None:
        headers = message.headers
        kind = headers.get(":message-type")
        if kind == "event":
            if headers.get(":event-type") == "PayloadPart":
                self._body.feed(message.payload, at_us)
            return
        name = safe_word(headers.get(":exception-type")) or safe_word(headers.get(":error-code"))
        self._reply.fail(name or "stream_exception", f"{kind} frame after a 200")
