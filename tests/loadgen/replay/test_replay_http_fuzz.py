"""The response parser under bytes of any kind, cut anywhere: it ends, it raises its own errors, it makes nothing up."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loadgen.replay.answering import received
from tests.loadgen.replay.hostile import BODY, WHOLE, WRITTEN

ENDS = {
    "",
    "closed_early",
    "closed_before_response",
    "bad_http",
    "surplus_bytes",
    "too_much_overhead",
    "event_too_long",
}
CUTS = st.lists(st.integers(0, 2000), max_size=12)
TOKENS = [
    b"\r\n",
    b"\n",
    b":",
    b"HTTP/1.1 200 OK\r\n",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n",
    b"0\r\n\r\n",
]
TOKENS += [
    b"ffff\r\n",
    b"\x00",
    b"data: ",
    b"data: [DONE]\n\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"Connection: close\r\n",
]


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


@given(st.sampled_from(sorted(WRITTEN)), CUTS)
def test_where_packets_end_changes_nothing(fault, cuts):
    data = WRITTEN[fault]
    whole, cut = received([data]), received(pieces(data, cuts))
    # What comes after the end is seen only where it comes with it: later it makes the connection unusable.
    same_end = {whole[0], ""} if whole[0] == "surplus_bytes" else {whole[0]}
    assert cut[0] in same_end
    assert cut[1] == whole[1]
    assert cut[2] == whole[2] or whole[0] == "bad_http"
    assert cut[3].finished == whole[3].finished or whole[0] == "bad_http"


@given(CUTS)
def test_byte_by_byte_an_answer_is_what_it_is(cuts):
    for split in (pieces(WHOLE, cuts), [WHOLE[i : i + 1] for i in range(len(WHOLE))]):
        ended, status, body, reply = received(split)
        assert (ended, status, body) == ("", 200, BODY)
        assert (reply.finished, reply.chunks, reply.error_kind) == (True, 2, None)


@pytest.mark.parametrize("head", ["000 X\r\n", "099 X\r\n", "104 X\r\nContent-Length: 4\r\n"])
def test_no_body_comes_before_the_head_of_an_answer(head):
    """RFC 9110, 15: a status begins with 1 to 5, and what begins with 1 ends with its head."""
    ended, status, body, _ = received([f"HTTP/1.1 {head}\r\nbody".encode()])
    assert (ended, status, body) == ("bad_http", None, b"")


@given(st.lists(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=8)), max_size=40), CUTS)
def test_any_bytes_end_in_an_error_of_ours_or_well(parts, cuts):
    ended, status, _, _ = received(pieces(b"".join(parts), cuts))
    assert ended in ENDS
    assert status is not None or ended


@given(st.data())
def test_a_damaged_answer_ends_in_an_error_of_ours_or_well(data):
    damaged = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    assert received(pieces(bytes(damaged), data.draw(CUTS)))[0] in ENDS


@given(st.integers(0, len(WHOLE) - 1))
def test_no_answer_that_was_cut_looks_whole(length):
    assert received([WHOLE[:length]])[0] in {"closed_early", "closed_before_response"}
