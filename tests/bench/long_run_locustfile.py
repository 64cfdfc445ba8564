"""The packaged locustfile, and every ten seconds a look at what its process keeps, into `$RAMPTRACE_BENCH_SIZES`."""

import json
import os
import sys
import time
from pathlib import Path

import gevent
import psutil
from locust import events

from loadgen.locustfile import ReplayUser

__all__ = ["ReplayUser"]

_EVERY_S = 10.0


@events.init.add_listener
def _watch(environment, **_):
    gevent.spawn(_sample, environment)


def _sample(environment):
    process = psutil.Process()
    with Path(os.environ["RAMPTRACE_BENCH_SIZES"]).open("w", buffering=1) as file:
        while True:
            total = environment.stats.total
            found = {
                "at_s": time.time(),
                "rss_mb": process.memory_info().rss / 1e6,
                "blocks": sys.getallocatedblocks(),
                "per_second": max(len(total.num_reqs_per_sec), len(total.num_fail_per_sec)),
                "response_times": len(total.response_times),
                "cached_response_times": len(total.response_times_cache or ()),
                "history": len(environment.stats.history),
                "entries": len(environment.stats.entries) + len(environment.stats.errors),
                "files": process.num_fds(),
                "requests": total.num_requests,
            }
            print(json.dumps(found), file=file)
            gevent.sleep(_EVERY_S)
