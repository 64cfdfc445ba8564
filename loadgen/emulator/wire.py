"""AWS wire protocols from the server's side, guided by botocore's own service models so that shapes cannot drift.

A request's members are read by the operation's input shape and checked with botocore's validator; a response's
members are written by its output shape, and a member that the shape does not know is an error here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import botocore.session
import cbor2
from botocore.model import OperationModel, ServiceModel, Shape
from botocore.utils import parse_timestamp
from botocore.validate import ParamValidator

Protocol = Literal["json", "cbor", "query", "ec2"]
QUERY_VERSIONS = {
    "2010-08-01": "cloudwatch",
    "2011-06-15": "sts",
    "2011-01-01": "autoscaling",
    "2015-12-01": "elbv2",
    "2016-11-15": "ec2",
}
"""Version of a call in the query protocol → the service that it is of."""


class ShapeError(Exception):
    """An answer of ours that does not fit the operation's shape: a mistake in the emulator."""


class WireError(Exception):
    """A request that does not fit the operation's shape; the message says where."""


@cache
def service_model(service: str) -> ServiceModel:
    """Return botocore's model of a service."""
    return botocore.session.get_session().get_service_model(service)


def parse_request(protocol: Protocol, operation: OperationModel, body: bytes) -> dict[str, Any]:
    """Return a request's members as Python values; unknown or wrong ones raise WireError."""
    shape = operation.input_shape
    if shape is None:
        return {}
    try:
        if protocol in {"query", "ec2"}:
            pairs = dict(parse_qsl(body.decode(), keep_blank_values=True))
            members = (_from_ec2_query if protocol == "ec2" else _from_query)(shape, pairs, "")
        else:
            document = (cbor2.loads(body) if protocol == "cbor" else json.loads(body)) if body else {}
            members = _from_document(shape, document, "")
    except WireError:
        raise
    except (ValueError, TypeError, KeyError, cbor2.CBORDecodeError) as error:
        raise WireError(f"the request cannot be read: {error}") from error
    found = members or {}
    report = ParamValidator().validate(found, shape)
    if report.has_errors():
        raise WireError(report.generate_report().replace("\n", "; "))
    return dict(found)


def render_response(
    protocol: Protocol, operation: OperationModel, members: Mapping[str, Any], request_id: str
) -> bytes:
    """Return a response's body; a member that the output shape does not know raises ShapeError."""
    shape = operation.output_shape
    document = _to_document(shape, members, protocol, operation.name) if shape is not None else {}
    if protocol == "json":
        return json.dumps(document, separators=(",", ":")).encode()
    if protocol == "cbor":
        return cbor2.dumps(document)
    name = operation.name
    if protocol == "ec2":
        namespace = f"http://ec2.amazonaws.com/doc/{operation.service_model.api_version}/"
        inner = "" if shape is None else _ec2_members(shape, document)
        return (
            f'<{name}Response xmlns="{namespace}"><requestId>{request_id}</requestId>{inner}</{name}Response>'.encode()
        )
    inner = (
        "".join(_xml(key, value, shape.members[key]) for key, value in document.items()) if shape is not None else ""
    )
    namespace = operation.service_model.metadata["xmlNamespace"]
    return (
        f'<{name}Response xmlns="{namespace}"><{name}Result>{inner}</{name}Result>'
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{name}Response>"
    ).encode()


def render_error(protocol: Protocol, code: str, message: str, request_id: str) -> bytes:
    """Return an error's body in the protocol's own shape."""
    if protocol == "json":
        return json.dumps({"__type": code, "message": message}).encode()
    if protocol == "cbor":
        return cbor2.dumps({"__type": f"com.amazonaws.cloudwatch#{code}", "message": message})
    if protocol == "ec2":
        error = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
        return f"<Response><Errors>{error}</Errors><RequestID>{request_id}</RequestID></Response>".encode()
    return (
        f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


def content_type(protocol: Protocol, json_version: str) -> str:
    """Return the content type of a protocol's bodies."""
    return {"json": f"application/x-amz-json-{json_version}", "cbor": "application/cbor"}.get(protocol, "text/xml")


def _from_document(shape: Shape, value: Any, path: str) -> Any:
    if value is None:
        return None
    expected = {"structure": dict, "map": dict, "list": list}.get(shape.type_name)
    if expected is not None and not isinstance(value, expected):
        raise WireError(f"{path or shape.name} must be a {shape.type_name}")
    if shape.type_name == "structure":
        unknown = set(value) - set(shape.members)
        if unknown:
            raise WireError(f"unknown member {min(unknown)!r} in {path or shape.name}")
        members = (
            (name, _from_document(shape.members[name], inner, f"{path}.{name}")) for name, inner in value.items()
        )
        return {name: inner for name, inner in members if inner is not None}
    if shape.type_name == "list":
        return [_from_document(shape.member, inner, path) for inner in value]
    if shape.type_name == "map":
        return {key: _from_document(shape.value, inner, path) for key, inner in value.items()}
    if shape.type_name == "timestamp":
        return value.astimezone(UTC) if isinstance(value, datetime) else parse_timestamp(value)
    if shape.type_name == "blob" and isinstance(value, str):
        return base64.b64decode(value)
    return value


def _from_query(shape: Shape, pairs: Mapping[str, str], prefix: str) -> Any:
    """Return the value under a prefix of flattened keys (`A.member.1.B`), or None when there is none."""
    if shape.type_name == "structure":
        found = {}
        for name, member in shape.members.items():
            value = _from_query(member, pairs, f"{prefix}.{name}" if prefix else name)
            if value is not None:
                found[name] = value
        return found or (None if prefix else {})
    if shape.type_name == "list":
        items: list[Any] = []
        while (item := _from_query(shape.member, pairs, f"{prefix}.member.{len(items) + 1}")) is not None:
            items.append(item)
        return items or None
    text = pairs.get(prefix)
    if text is None or shape.type_name == "map":
        return None
    return _scalar(shape.type_name, text)


def _from_ec2_query(shape: Shape, pairs: Mapping[str, str], prefix: str) -> Any:
    """Return the value under a prefix of keys as EC2 flattens them: names in capitals, lists without `member`."""
    if shape.type_name == "structure":
        found = {}
        for name, member in shape.members.items():
            stated = member.serialization.get("queryName") or member.serialization.get("name", name)
            key = stated[:1].upper() + stated[1:]
            value = _from_ec2_query(member, pairs, f"{prefix}.{key}" if prefix else key)
            if value is not None:
                found[name] = value
        return found or (None if prefix else {})
    if shape.type_name == "list":
        items: list[Any] = []
        while (item := _from_ec2_query(shape.member, pairs, f"{prefix}.{len(items) + 1}")) is not None:
            items.append(item)
        return items or None
    text = pairs.get(prefix)
    return None if text is None else _scalar(shape.type_name, text)


def _ec2_members(shape: Shape, members: Mapping[str, Any]) -> str:
    parts = (
        (shape.members[key].serialization.get("name", key), value, shape.members[key]) for key, value in members.items()
    )
    return "".join(_ec2_xml(*part) for part in parts)


def _ec2_xml(name: str, value: Any, shape: Shape) -> str:
    """EC2 names members by their location, and list items `item`."""
    if shape.type_name == "structure":
        inner = _ec2_members(shape, value)
    elif shape.type_name == "list":
        inner = "".join(_ec2_xml("item", part, shape.member) for part in value)
    elif shape.type_name == "boolean":
        inner = "true" if value else "false"
    else:
        inner = escape(str(value))
    return f"<{name}>{inner}</{name}>"


def _scalar(type_name: str, text: str) -> Any:
    if type_name in {"integer", "long"}:
        return int(text)
    if type_name in {"float", "double"}:
        return float(text)
    if type_name == "boolean":
        return text == "true"
    if type_name == "timestamp":
        return parse_timestamp(text)
    return text


def _to_document(shape: Shape, value: Any, protocol: Protocol, path: str) -> Any:
    if shape.type_name == "structure":
        unknown = set(value) - set(shape.members)
        if unknown:
            raise ShapeError(f"{path} has no member {min(unknown)!r}")
        return {
            name: _to_document(shape.members[name], inner, protocol, f"{path}.{name}")
            for name, inner in value.items()
            if inner is not None
        }
    if shape.type_name == "list":
        return [_to_document(shape.member, inner, protocol, path) for inner in value]
    if shape.type_name == "map":
        return {key: _to_document(shape.value, inner, protocol, path) for key, inner in value.items()}
    if shape.type_name == "timestamp":
        return _timestamp(value, protocol)
    if shape.type_name in {"float", "double"}:
        return float(value)
    return value


def _timestamp(value: datetime, protocol: Protocol) -> Any:
    """AWS gives milliseconds at most."""
    milliseconds = round(value.timestamp() * 1000)
    if protocol in {"query", "ec2"}:
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"
    return cbor2.CBORTag(1, milliseconds / 1000) if protocol == "cbor" else milliseconds / 1000


def _xml(name: str, value: Any, shape: Shape) -> str:
    if shape.type_name == "structure":
        inner = "".join(_xml(key, part, shape.members[key]) for key, part in value.items())
    elif shape.type_name == "list":
        inner = "".join(_xml("member", part, shape.member) for part in value)
    elif shape.type_name == "map":
        entries = (
            f"<entry><key>{escape(key)}</key>{_xml('value', part, shape.value)}</entry>" for key, part in value.items()
        )
        inner = "".join(entries)
    elif shape.type_name == "boolean":
        inner = "true" if value else "false"
    else:
        inner = escape(str(value))
    return f"<{name}>{inner}</{name}>"
