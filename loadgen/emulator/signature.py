"""Verification of AWS Signature Version 4, by computing the signature again with botocore."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<date>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, ?"
    r"SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)
_LONGEST_SKEW = timedelta(minutes=5)


class SignatureError(Exception):
    """A request that is not signed as it should be; `code` is the name that AWS's JSON services give the error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came: path and query exactly as on the wire; `headers` finds names in any case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


def verify(received: Received, key: str, secret: str, services: frozenset[str], now_us: int) -> None:
    """Raise SignatureError unless the request is signed with these credentials for one of the services.

    `now_us` is the present on the clock that the client signs by, its wall clock.
    """
    stated = received.headers.get("Authorization")
    if stated is None:
        raise SignatureError("MissingAuthenticationTokenException", "Missing Authentication Token")
    parts = _AUTHORIZATION.fullmatch(stated.strip())
    signed_at = received.headers.get("X-Amz-Date", "")
    if parts is None or not re.fullmatch(r"\d{8}T\d{6}Z", signed_at):
        raise SignatureError("IncompleteSignatureException", "Authorization header or X-Amz-Date is malformed.")
    if parts["key"] != key:
        raise SignatureError("UnrecognizedClientException", "The security token included in the request is invalid.")
    if parts["service"] not in services:
        expected = " or ".join(sorted(services))
        raise SignatureError(
            "InvalidSignatureException", f"Credential should be scoped to correct service: '{expected}'."
        )
    instant = datetime.strptime(signed_at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if abs(datetime.fromtimestamp(now_us / 1e6, UTC) - instant) > _LONGEST_SKEW:
        raise SignatureError("InvalidSignatureException", f"Signature expired or not yet valid: {signed_at}")
    digest = received.headers.get("X-Amz-Content-SHA256")
    body_matches = digest is None or digest == hashlib.sha256(received.body).hexdigest()
    if not body_matches or not hmac.compare_digest(_signature(received, parts, signed_at, secret), parts["signature"]):
        raise SignatureError(
            "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. "
            "Check your AWS Secret Access Key and signing method.",
        )


def _signature(received: Received, parts: re.Match[str], signed_at: str, secret: str) -> str:
    headers = {name: received.headers.get(name, "") for name in parts["headers"].split(";")}
    # The address is taken from the wire as it is: whatever host the client meant stands in its signed Host header.
    url = f"http://{received.headers.get('Host', '')}{received.target}"
    request = AWSRequest(method=received.method, url=url, headers=headers, data=received.body)
    request.context["timestamp"] = signed_at
    auth = SigV4Auth(Credentials(parts["key"], secret), parts["service"], parts["region"])
    text = auth.string_to_sign(request, auth.canonical_request(request))
    signature: str = auth.signature(text, request)
    return signature
