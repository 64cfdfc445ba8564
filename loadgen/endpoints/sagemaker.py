"""SageMaker real-time endpoints: InvokeEndpoint and InvokeEndpointWithResponseStream with a chat-completions body.

Signatures (SigV4), credentials, regions and event-stream frames are botocore's; the bytes go over the replay's own
client, because botocore's hides 429 and 503 behind retries and ten connections. Locust must have been imported before
this module: botocore imported first makes gevent's patching of ssl recurse.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import botocore.session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.eventstream import EventStreamBuffer, ParserError
from botocore.exceptions import BotoCoreError

from loadgen.endpoints.base import Body, Headers, Reply, header_text, http_request, parse_target, safe_word
from loadgen.endpoints.chat import ChatBody, ChatStream, ErrorBody, chat_body
from loadgen.plan import PlannedRequest
from loadgen.scenario import TargetSection
from traces.errors import BadInputError

_SERVICE = "sagemaker"
_UNIT = re.compile(r"(?:^|[;,\s])unit_id=([A-Za-z0-9_.:-]{1,64})")


class SageMakerEndpoint:
    """Invokes one endpoint by name, streamed or whole."""

    kind = "sagemaker"

    def __init__(self, section: TargetSection, *, seed: int) -> None:
        session: Any = botocore.session.get_session()
        region = section.region or session.get_config_variable("region")
        if not region:
            raise BadInputError("target: no region; add region to [target], --region, or AWS_REGION")
        try:
            self.url = section.url or _address(session, region)
            self._credentials = session.get_credentials()
        except BotoCoreError as error:
            raise BadInputError(f"target: AWS configuration cannot be used ({error})") from None
        if self._credentials is None:
            raise BadInputError("target: no AWS credentials found; set AWS_PROFILE or AWS_ACCESS_KEY_ID, or log in")
        self.target = parse_target(self.url)
        self.model = section.model
        self._region = region
        self._stream = section.stream
        self._seed = seed
        operation = "invocations-response-stream" if section.stream else "invocations"
        self.path = f"{self.target.path}/endpoints/{quote(section.endpoint_name or '', safe='')}/{operation}"
        self.label = section.endpoint_name or self.path
        self._frozen: Any = None

    def refresh(self) -> None:
        """Renew the credentials where their provider says so."""
        try:
            self._frozen = self._credentials.get_frozen_credentials()
        except BotoCoreError as error:
            if self._frozen is None:
                raise BadInputError(f"target: AWS credentials cannot be fetched ({error}); log in again") from None
            # With the old ones the requests go out and fail with the service's own words, which is what happened.

    def prepare(self, request: PlannedRequest) -> bytes:
        """Return the whole signed HTTP request."""
        body = chat_body(request, model=self.model, stream=self._stream, seed=self._seed)
        headers = {"Content-Type": "application/json", "Host": self.target.authority}
        signed = AWSRequest(method="POST", url=self.target.origin + self.path, data=body, headers=headers)
        SigV4Auth(self._frozen, _SERVICE, self._region).add_auth(signed)
        sent = {name: value for name, value in signed.headers.items() if name.lower() != "host"}
        return http_request(self.target, self.path, body, sent | {"User-Agent": "ramptrace"})

    def open(self, status: int, headers: Headers, reply: Reply) -> Body:
        """Return the decoder for an answer with this head."""
        attributes = header_text(headers, "x-amzn-sagemaker-custom-attributes") or ""
        unit = _UNIT.search(attributes)
        reply.unit_id = unit[1] if unit else safe_word(header_text(headers, "x-ramptrace-unit"))
        if not 200 <= status < 300:
            error_type = (header_text(headers, "x-amzn-errortype") or "").partition(":")[0]
            return ErrorBody(reply, status, safe_word(error_type))
        return FramedStream(reply) if self._stream else ChatBody(reply)


class FramedStream:
    """Decodes event-stream frames whose payload parts hold the bytes of a chat-completions stream.

    A part may end anywhere inside an event. An exception or error frame is a failure, although the status was 200.
    """

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._frames = EventStreamBuffer()
        self._chat = ChatStream(reply)
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
        self._chat.close()

    def _take(self, message: Any, at_us: int) -> None:
        headers = message.headers
        kind = headers.get(":message-type")
        if kind == "event":
            if headers.get(":event-type") == "PayloadPart":
                self._chat.feed(message.payload, at_us)
            return
        name = safe_word(headers.get(":exception-type")) or safe_word(headers.get(":error-code"))
        self._reply.fail(name or "stream_exception", f"{kind} frame after a 200")


def _address(session: Any, region: str) -> str:
    client = session.create_client(
        "sagemaker-runtime", region_name=region, config=Config(retries={"total_max_attempts": 1})
    )
    address: str = client.meta.endpoint_url
    return address
