"""The splitter against a simple reference that sees the whole text at once."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen import sse
from loadgen.sse import SseEvent, SseOverflowError, SseSplitter


def reference(text: bytes) -> list[SseEvent]:
    lines = re.split(rb"\r\n|\r|\n", text.removeprefix(b"\xef\xbb\xbf"))
    events, name, data = [], b"", []
    for line in [*lines, b""]:
        if not line:
            if data:
                events.append(SseEvent(name, b"\n".join(data)))
            name, data = b"", []
            continue
        field, _colon, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return events


ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
LINES = st.sampled_from(
    [b"", b"", b"data: a", b"data:b", b"data", b"data:  two", b"event: error", b": comment", b"id: 7", b"data: [DONE]"]
) | st.binary(max_size=6)


@st.composite
def streams(draw):
    text = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    for line in draw(st.lists(LINES, max_size=12)):
        text += line + draw(ENDS)
    return text + draw(st.sampled_from([b"", b"data: tail", b"data: [DONE]"]))


@given(streams(), st.lists(st.integers(0, 200), max_size=12))
def test_any_chunking_gives_what_the_whole_text_gives(text, cuts):
    bounds = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    splitter = SseSplitter()
    events = [e for a, b in itertools.pairwise(bounds) for e in splitter.feed(text[a:b])]
    assert events + splitter.close() == reference(text)


def test_byte_by_byte_crlf_delivers_each_event_as_soon_as_its_blank_line_begins():
    splitter = SseSplitter()
    seen = [(i, e.data) for i in range(18) for e in splitter.feed(b"data: a\r\n\r\ndata: b"[i : i + 1])]
    assert seen == [(9, b"a")]  # at the CR of the blank line, not at the LF after it


def test_an_endless_event_is_an_error(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    splitter = SseSplitter()
    splitter.feed(b"data: 0123456789\n" * 10)
    with pytest.raises(SseOverflowError):
        splitter.feed(b"data: 0123456789\nda")


def test_an_endless_line_is_an_error(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    splitter = SseSplitter()
    splitter.feed(b"data: " + b"x" * 90)
    with pytest.raises(SseOverflowError):
        splitter.feed(b"x" * 10)
