"""The bare gevent socket loop that the replay is measured against: as little as a client can do.

    python bare_client.py PORT ARRIVALS.json OUT.json

Kept-alive gevent sockets, one greenlet per request, absolute deadlines; counts `data:` marks, parses nothing, keeps
three numbers per request. Writes its start and `[number, due_us, first_us]` rows (µs since 1970).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import gevent
import gevent.pool
import gevent.socket

PORT, ARRIVALS, OUT = int(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])
BODY = json.dumps({"model": "m", "stream": True, "max_tokens": 100, "prompt": "one " * 16}).encode()
WIRE = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
idle: list[gevent.socket.socket] = []
rows: list[tuple[int, int, int]] = []
chunks = [0]


def now_us() -> int:
    return time.time_ns() // 1000


def send(due_us: int) -> None:
    if idle:
        sock = idle.pop()
    else:
        sock = gevent.socket.socket()
        sock.setsockopt(gevent.socket.IPPROTO_TCP, gevent.socket.TCP_NODELAY, 1)
        sock.connect(("127.0.0.1", PORT))
    sock.sendall(WIRE)
    data = sock.recv(16384)
    first_us = now_us()
    number = int(data[data.index(b"unit: r-") + 8 :].split(b"\r", 1)[0])
    chunks[0] += data.count(b"data:")
    while not data.endswith(b"0\r\n\r\n"):
        data = sock.recv(16384)
        chunks[0] += data.count(b"data:")
    idle.append(sock)
    rows.append((number, due_us, first_us))


def main() -> None:
    group, start_us = gevent.pool.Group(), now_us() + 2_000_000
    for offset in ARRIVALS:
        left = start_us + offset - now_us()
        if left > 0:
            gevent.sleep(left / 1e6)
        group.spawn(send, start_us + offset)
    group.join()
    OUT.write_text(json.dumps({"start_us": start_us, "chunks": chunks[0], "rows": rows}))


if __name__ == "__main__":
    main()
