"""Answers are taken in the event loop's own callback: what goes wrong there ends the read and leaves nothing behind."""

from __future__ import annotations

import _socket
import socket
import struct
import time

import gevent
import pytest
from gevent.exceptions import BlockingSwitchOutError

from loadgen.sockets import PlainSocket, ReadError


@pytest.fixture
def pair():
    """A connection of ours, and the server's end of it."""
    listener = socket.create_server(("127.0.0.1", 0))
    raw = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    raw.connect(listener.getsockname())
    raw.setblocking(False)
    server, _ = listener.accept()
    listener.close()
    ours = PlainSocket(raw)
    yield ours, server
    ours.close()
    server.close()


def test_pieces_come_as_they_are_until_the_last(pair):
    ours, server = pair
    taken = []

    def take(data):
        taken.append(data)
        return data.endswith(b"!")

    gevent.spawn_later(0.02, server.sendall, b"two!")
    server.sendall(b"one ")
    assert ours.read(take) is False
    assert b"".join(taken) == b"one two!"


def test_the_connections_end_is_told_by_nothing(pair):
    ours, server = pair
    server.sendall(b"half")
    server.close()
    taken = []
    assert ours.read(lambda data: taken.append(data) or not data) is True
    assert taken[-1] == b""


def test_a_reset_is_a_read_that_failed(pair):
    ours, server = pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    with pytest.raises(ReadError) as caught:
        ours.read(lambda _data: False)
    assert caught.value.was_reset


def test_a_decoder_that_waits_is_told_so_at_once(pair):
    ours, server = pair
    server.sendall(b"data")
    began = time.monotonic()
    with gevent.Timeout(5), pytest.raises(BlockingSwitchOutError):
        ours.read(lambda _data: gevent.sleep(60))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("error", [ValueError("bad"), gevent.GreenletExit("left")])
def test_what_a_decoder_raises_ends_the_read_and_stops_the_watching(pair, error):
    ours, server = pair
    calls = []

    def take(data):
        calls.append(data)
        raise error

    server.sendall(b"first")
    with pytest.raises(type(error)):
        ours.read(take)
    server.sendall(b"second")
    gevent.sleep(0.05)
    assert calls == [b"first"]


def test_a_timeout_leaves_the_connection_unwatched(pair):
    ours, server = pair
    calls = []
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.05):
        ours.read(lambda data: calls.append(data) or False)
    server.sendall(b"late")
    gevent.sleep(0.05)
    assert calls == []
    assert ours.read(lambda data: calls.append(data) or True) is False
    assert calls == [b"late"]


def test_an_answer_and_a_kill_at_the_same_moment_end_it_once(pair):
    ours, server = pair
    ends = []

    def request():
        try:
            ours.read(lambda _data: True)
            ends.append("answer")
        except gevent.GreenletExit:
            ends.append("kill")

    reader = gevent.spawn(request)
    gevent.sleep(0.01)
    server.sendall(b"whole")
    reader.kill(block=False)
    reader.join(5)
    assert len(ends) == 1
