"""What of the platforms' words may be written: allow-lists of keys and of words. Pure.

Of a document, text under known keys is kept; numbers, truth values and instants say nothing about anybody. Containers'
environments keep their keys, and the values of harmless settings of serving engines. Of prose, known words are kept.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

REDACTED: Final = "***"
LONGEST: Final = 300
_OPEN_KEYS = re.compile(
    r"(?:OPTION_|SM_VLLM_|SM_NUM_GPUS|SERVING_|MAX_|TENSOR_PARALLEL|NUM_SHARD|DTYPE|QUANTIZE|HF_MODEL_ID|MODEL_ID)[A-Z0-9_]*"
)
_CLOSED_KEYS = re.compile(r"TOKEN(?!IZER|S\b|S_)|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|AUTH|COOKIE")
_PLAIN_VALUE = re.compile(r"[\w./:,+ -]{0,120}")
_LONG_WORD = re.compile(r"[A-Za-z0-9+/=_]{32,}")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_QUANTITY = re.compile(r"-?\d{1,9}(?:\.\d{1,9})?(?:[kKMGTPE]i?|m|%)?")
_RESOURCE = re.compile(r"[a-z0-9][a-z0-9./-]{0,127}")
_USER = re.compile(r"(?<=//)[^/@]*@")

_SECRETS = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"  # access key ids
    r"|(?<=::)\d{12}(?=:)|\b\d{12}\b"  # account numbers
    r"|[A-Za-z0-9+/=]{40,}"  # keys, tokens, signatures
    r"|\b(?:hf|sk|pk|gh[pousr]|github_pat|glpat|xox[abprs])[-_][\w-]{8,}"  # tokens by their makers' prefixes
    r"|\beyJ[\w-]{8,}(?:\.[\w-]+)*"  # JSON web tokens
    r"|(?i:(?<=bearer )[\w.~+/-]{6,}|(?<=password[=:])\S+|(?<=token[=:])\S+|(?<=secret[=:])\S+|(?<=signature[=:])\S+)"
)
_WHITE = re.compile(r"\s+")
_HIDDEN = re.compile(r"\*\*\*(?: \*\*\*)+")
_EDGE = re.compile(r"^[^\w]+|[^\w]+$")
_CHUNKS = re.compile(r"[^A-Za-z0-9]+")
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NUMBER = re.compile(r"p?\d{1,6}(?:s|ms|us|ns|m|h|k|x|[KMGT]i?B?)?")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?")


class _Keys(NamedTuple):
    structures: frozenset[str]
    names: frozenset[str]
    prose: frozenset[str]
    quantities: frozenset[str]


def kept(document: Any, key: str | None = None) -> Any:
    """Return a copy of a document with what may be written of it; `key` is the one that it stands under."""
    if isinstance(document, Mapping):
        return _kept_of(document, key)
    if isinstance(document, list | tuple):
        return [kept(value, key) for value in document]
    if not isinstance(document, str):
        return document
    keys = _keys()
    if key in keys.prose:
        return said(document)
    if key in keys.names:
        return named(document)
    return document if _QUANTITY.fullmatch(document) else REDACTED


def said(text: Any) -> str:
    """Return a platform's prose on one line of at most 300 characters, its unknown words left out.

    >>> said("0/4 nodes are available: 4 Insufficient nvidia.com/gpu, and hunter2")
    '0/4 nodes are available: 4 Insufficient nvidia.com/gpu, and ***'
    >>> said("User: arn:aws:iam::123456789012:user/x is not authorized to perform: sagemaker:DescribeEndpoint")
    'User: *** is not authorized to perform: sagemaker:DescribeEndpoint'
    """
    words = (_word(word) for word in _WHITE.split(str(text).strip()))
    return _HIDDEN.sub(REDACTED, " ".join(words))[:LONGEST]


def redact(text: str) -> str:
    r"""Return a message of this machine on one line of at most 300 characters, without keys, tokens, account numbers.

    >>> redact("cannot read arn:aws:iam::123456789012:user/x\n from here")
    'cannot read arn:aws:iam::***:user/x from here'
    """
    return _SECRETS.sub(REDACTED, _WHITE.sub(" ", text)).strip()[:LONGEST]


def named(text: str) -> str:
    """Return a name or an address without what may be a credential: a query, which holds signatures, and a user.

    >>> named("https://me:hunter2@bucket/model.tar.gz?X-Amz-Signature=abc")
    'https://bucket/model.tar.gz'
    """
    return _USER.sub("", text.partition("?")[0])


def environment(variables: Mapping[str, Any]) -> dict[str, str]:
    """Return a container's environment: its keys, and the values of harmless settings."""
    return {
        key: str(value) if _is_open(key, str(value)) else REDACTED
        for key, value in variables.items()
        if _PLAIN_KEY.fullmatch(str(key))
    }


def _kept_of(document: Mapping[str, Any], key: str | None) -> dict[str, Any]:
    keys = _keys()
    if key == "Environment":
        return environment(document)
    if key in keys.quantities:
        return {
            str(name): str(value)
            for name, value in document.items()
            if _RESOURCE.fullmatch(str(name)) and _QUANTITY.fullmatch(str(value))
        }
    found = {}
    for name, value in document.items():
        nested = isinstance(value, Mapping) or (
            isinstance(value, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in value)
        )
        known = name in keys.structures or name in keys.quantities or name == "Environment"
        if _PLAIN_KEY.fullmatch(str(name)) and (known or not nested):
            found[str(name)] = kept(value, str(name))
    return found


def _word(word: str) -> str:
    core = _EDGE.sub("", word)
    if not core or _INSTANT.fullmatch(core) or all(_known(chunk) for chunk in _CHUNKS.split(core) if chunk):
        return word
    before, _, after = word.partition(core)
    return f"{before}{REDACTED}{after}"


def _known(chunk: str) -> bool:
    if _NUMBER.fullmatch(chunk) or chunk.lower() in _words():
        return True
    humps = _HUMPS.findall(chunk)
    return "".join(humps) == chunk and all(hump.lower() in _words() for hump in humps)


def _is_open(key: str, value: str) -> bool:
    key = key.upper()
    if not _OPEN_KEYS.fullmatch(key) or _CLOSED_KEYS.search(key):
        return False
    return bool(_PLAIN_VALUE.fullmatch(value)) and not _LONG_WORD.search(value) and not value.startswith("hf_")


def instant_text(value: Any) -> str | None:
    """Return a text that states an instant, `None` for any other."""
    try:
        datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return str(value)


@cache
def _keys() -> _Keys:
    lists = tomllib.loads((files("loadgen.collect") / "known_keys.toml").read_text())
    return _Keys(*(frozenset(lists[name].split()) for name in _Keys._fields))


@cache
def _words() -> frozenset[str]:
    lines = (files("loadgen.collect") / "known_words.txt").read_text().splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
