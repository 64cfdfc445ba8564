"""The virtual queue's loop over arrays, compiled by numba: see `compiled_queue`.

Events are kept otherwise than in `virtual_queue`. A unit's next last token lies with the unit, and requests give up in
the order in which they began to wait, so that neither needs the heap. All are ordered by time, then by entry, as there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numba

from loadgen.emulator.virtual_load import CANCELLED, NEVER, OK, TIMED_OUT, WAITING

_EPSILON: Final = 1e-6
NEVER_US: Final = 2**62
_FIRST, _LEAVE, _ARRIVE = 0, 1, 2
NOBODY: Final = -1
_FROM_HEAP, _GIVES_UP = -1, -2
"""What is next, where it is not a unit's last token."""

NEXT, _SEQ, OUTSTANDING, ARRIVED, _HEAP, _QUEUE_HEAD, _QUEUE_TAIL, _QUEUED = range(8)
_GIVE_HEAD, _GIVE_TAIL, ACTIVE, LATENCIES, ERRORS, FIRST_SERVED = range(8, 14)
"""Places in `State.n`: counters and positions."""
_VALUE, _INTEGRAL, _MINIMUM, _MAXIMUM, _WATCHED = range(5)
_CHANGED, _EXCEEDED = range(2)
"""Places in `State.gauge` and `State.gauge_us`."""


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function when it is first called, and keep that for the next process where there is a place for it.

    The loop allocates nothing. Without numba's run-time for what is allocated, handing the state's arrays from function
    to function costs nothing either: measured 0.17 instead of 3.8 µs per request.
    """
    options: dict[str, Any] = {"forceinline": True, "_nrt": False}
    try:
        return numba.njit(cache=True, **options)(function)  # type: ignore[no-any-return] # hardly typed
    except RuntimeError:  # there is none
        return numba.njit(**options)(function)  # type: ignore[no-any-return]


class State(NamedTuple):
    """All that the loop works on, as arrays: counters, the load, what became of it, events, units, and what it tells.

    `last_at`, `last_seq` and `last_k` have a row per unit, sorted so that the next last token is the last entry.
    """

    n: Any
    arrival_us: Any
    prefill_us: Any
    tokens: Any
    leaves: Any
    patience_us: Any
    before: Any
    think_us: Any
    first_follower: Any
    next_follower: Any
    due_us: Any
    admitted_us: Any
    first_us: Any
    done_us: Any
    unit: Any
    outcome: Any
    on: Any
    pace_us: Any
    heap_us: Any
    heap_seq: Any
    heap_kind: Any
    heap_k: Any
    queue: Any
    queue_timeout_us: Any
    give_us: Any
    give_seq: Any
    give_k: Any
    order: Any
    accepting: Any
    has_served: Any
    jobs: Any
    clock: Any
    clock_us: Any
    token_us: Any
    entered: Any
    next_us: Any
    next_seq: Any
    decoding: Any
    last_at: Any
    last_seq: Any
    last_k: Any
    gauge: Any
    gauge_us: Any
    latency: Any
    served_us: Any
    served_unit: Any


@_compiled
def _enter(s: State, at_us: int, kind: int, k: int) -> None:
    i = s.n[_HEAP]
    s.n[_HEAP] += 1
    seq = s.n[_SEQ]
    s.n[_SEQ] += 1
    while i > 0:
        above = (i - 1) >> 1
        if s.heap_us[above] <= at_us:  # what was entered before comes first
            break
        s.heap_us[i], s.heap_seq[i] = s.heap_us[above], s.heap_seq[above]
        s.heap_kind[i], s.heap_k[i] = s.heap_kind[above], s.heap_k[above]
        i = above
    s.heap_us[i], s.heap_seq[i], s.heap_kind[i], s.heap_k[i] = at_us, seq, kind, k


@_compiled
def _drop_first(s: State) -> None:
    s.n[_HEAP] -= 1
    size = s.n[_HEAP]
    at_us, seq, kind, k = s.heap_us[size], s.heap_seq[size], s.heap_kind[size], s.heap_k[size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            s.heap_us[other] < s.heap_us[child]
            or (s.heap_us[other] == s.heap_us[child] and s.heap_seq[other] < s.heap_seq[child])
        ):
            child = other
        if at_us < s.heap_us[child] or (at_us == s.heap_us[child] and seq < s.heap_seq[child]):
            break
        s.heap_us[i], s.heap_seq[i] = s.heap_us[child], s.heap_seq[child]
        s.heap_kind[i], s.heap_k[i] = s.heap_kind[child], s.heap_k[child]
        i = child
    s.heap_us[i], s.heap_seq[i], s.heap_kind[i], s.heap_k[i] = at_us, seq, kind, k


@_compiled
def _route(s: State) -> int:
    found, least = NOBODY, s.pace_us.size - 1
    for i in range(s.n[ACTIVE]):
        u = s.order[i]
        if s.jobs[u] < least and s.accepting[u]:
            found, least = u, s.jobs[u]
    return found


@_compiled
def _change(s: State, u: int, now_us: int, by: int) -> None:
    s.clock[u] += (now_us - s.clock_us[u]) / s.token_us[u]
    s.clock_us[u] = now_us
    s.jobs[u] += by
    s.token_us[u] = s.pace_us[s.jobs[u]]
    s.next_us[u] = NEVER_US


@_compiled
def _watch(s: State, u: int) -> None:
    size = s.decoding[u]
    if size > 0:
        ahead = math.ceil((s.last_at[u, size - 1] - s.clock[u]) * s.token_us[u] - _EPSILON)
        s.next_us[u] = s.clock_us[u] + int(ahead)
        s.next_seq[u] = s.n[_SEQ]
        s.n[_SEQ] += 1


@_compiled
def _admit(s: State, k: int, u: int, now_us: int) -> None:
    first_us = now_us + s.prefill_us[k]
    s.admitted_us[k], s.first_us[k], s.unit[k], s.on[k] = now_us, first_us, u, u
    _change(s, u, now_us, 1)
    _enter(s, first_us, _FIRST, k)
    _watch(s, u)


@_compiled
def dispatch(s: State, now_us: int, vacated: int) -> bool:
    """Give free slots to the queue; tell whether the unit that was vacated got one of them."""
    touched = False
    while s.n[_QUEUED] > 0:
        u = _route(s)
        if u == NOBODY:
            break
        k = s.queue[s.n[_QUEUE_HEAD]]
        s.n[_QUEUE_HEAD] += 1
        if s.outcome[k] != WAITING:
            continue
        s.n[_QUEUED] -= 1
        _admit(s, k, u, now_us)
        touched = touched or u == vacated
    return touched


@_compiled
def _first_token(s: State, k: int, now_us: int) -> None:
    u = s.on[k]
    if u == NOBODY:
        return
    last_at = s.clock[u] + (now_us - s.clock_us[u]) / s.token_us[u] + s.tokens[k] - 1
    i = s.decoding[u]
    s.decoding[u] += 1
    while i > 0 and s.last_at[u, i - 1] <= last_at:  # of two at one instant the earlier entry is the next
        s.last_at[u, i], s.last_seq[u, i], s.last_k[u, i] = (
            s.last_at[u, i - 1],
            s.last_seq[u, i - 1],
            s.last_k[u, i - 1],
        )
        i -= 1
    s.last_at[u, i], s.last_seq[u, i], s.last_k[u, i] = last_at, s.entered[u], k
    s.entered[u] += 1
    s.next_us[u] = NEVER_US
    if not s.has_served[u]:
        s.has_served[u] = True
        s.served_us[s.n[FIRST_SERVED]], s.served_unit[s.n[FIRST_SERVED]] = now_us, u
        s.n[FIRST_SERVED] += 1
    _watch(s, u)


@_compiled
def _end(s: State, k: int, now_us: int, outcome: int) -> None:
    s.done_us[k], s.outcome[k] = now_us, outcome
    s.n[OUTSTANDING] -= 1
    if outcome != CANCELLED:
        s.latency[s.n[LATENCIES]] = now_us - s.due_us[k]
        s.n[LATENCIES] += 1
        if outcome == TIMED_OUT:
            s.n[ERRORS] += 1
    if s.first_follower.size > 0:
        follower = s.first_follower[k]
        while follower != NOBODY:
            if follower < s.n[NEXT]:
                _enter(s, max(s.arrival_us[follower], now_us + s.think_us[follower]), _ARRIVE, follower)
            follower = s.next_follower[follower]


@_compiled
def _vacated(s: State, u: int, now_us: int) -> None:
    if not s.accepting[u] and s.jobs[u] == 0:
        i = 0
        while s.order[i] != u:
            i += 1
        s.n[ACTIVE] -= 1
        for j in range(i, s.n[ACTIVE]):
            s.order[j] = s.order[j + 1]
    if not dispatch(s, now_us, u):
        _watch(s, u)


@_compiled
def _last_tokens(s: State, u: int, now_us: int) -> None:
    reached = s.clock[u] + (now_us - s.clock_us[u]) / s.token_us[u] + _EPSILON
    size = left = s.decoding[u]
    while left > 0 and s.last_at[u, left - 1] <= reached:
        left -= 1
        s.on[s.last_k[u, left]] = NOBODY
        _change(s, u, now_us, -1)
    s.decoding[u] = left
    for i in range(size - 1, left - 1, -1):
        k = s.last_k[u, i]
        _end(s, k, now_us, CANCELLED if s.leaves.size > 0 and s.leaves[k] else OK)
    s.next_us[u] = NEVER_US
    _vacated(s, u, now_us)


@_compiled
def _remove(s: State, k: int, now_us: int, outcome: int) -> bool:
    """Take a request out that waited too long or whose client went away; tell whether it was still there."""
    if s.outcome[k] != WAITING:
        return False
    u = s.on[k]
    if u == NOBODY:
        s.n[_QUEUED] -= 1
        _end(s, k, now_us, outcome)
        return True
    s.on[k] = NOBODY
    size = s.decoding[u]
    for i in range(size):
        if s.last_k[u, i] == k:
            for j in range(i, size - 1):
                s.last_at[u, j], s.last_seq[u, j], s.last_k[u, j] = (
                    s.last_at[u, j + 1],
                    s.last_seq[u, j + 1],
                    s.last_k[u, j + 1],
                )
            s.decoding[u] -= 1
            break
    _change(s, u, now_us, -1)
    _vacated(s, u, now_us)
    _end(s, k, now_us, outcome)
    return True


@_compiled
def _arrive(s: State, k: int, now_us: int) -> None:
    s.due_us[k] = now_us
    s.n[OUTSTANDING] += 1
    s.n[ARRIVED] += 1
    u = NOBODY if s.n[_QUEUED] > 0 else _route(s)
    if u == NOBODY:
        s.queue[s.n[_QUEUE_TAIL]] = k
        s.n[_QUEUE_TAIL] += 1
        s.n[_QUEUED] += 1
        tail = s.n[_GIVE_TAIL]
        s.give_us[tail], s.give_seq[tail], s.give_k[tail] = now_us + s.queue_timeout_us[0], s.n[_SEQ], k
        s.n[_GIVE_TAIL] += 1
        s.n[_SEQ] += 1
    else:
        _admit(s, k, u, now_us)
    if s.patience_us.size > 0 and s.patience_us[k] != NEVER:
        _enter(s, now_us + s.patience_us[k], _LEAVE, k)


@_compiled
def _may_start(s: State, k: int, now_us: int) -> bool:
    """Tell whether a turn may go now; one that may not is entered for later, or by the end of the one before."""
    ended_us = s.done_us[s.before[k]]
    if ended_us == NEVER:
        return False
    due_us = ended_us + s.think_us[k]
    if due_us > now_us:
        _enter(s, due_us, _ARRIVE, k)
        return False
    return True


@_compiled
def _set_gauge(s: State, now_us: int, value: float) -> None:
    s.gauge[_INTEGRAL] += s.gauge[_VALUE] * (now_us - s.gauge_us[_CHANGED])
    s.gauge_us[_CHANGED] = now_us
    s.gauge[_VALUE] = value
    if value < s.gauge[_MINIMUM]:
        s.gauge[_MINIMUM] = value
    elif value > s.gauge[_MAXIMUM]:
        s.gauge[_MAXIMUM] = value
    if value > s.gauge[_WATCHED] and s.gauge_us[_EXCEEDED] == NEVER:
        s.gauge_us[_EXCEEDED] = now_us


@_compiled
def _next_event(s: State) -> tuple[int, int]:
    """Return when the next event is, and what: a unit's last token (its number), `_GIVES_UP`, or the heap's first."""
    at_us, seq, what = NEVER_US, s.n[_SEQ], _FROM_HEAP
    if s.n[_HEAP] > 0:
        at_us, seq = s.heap_us[0], s.heap_seq[0]
    head = s.n[_GIVE_HEAD]
    while head < s.n[_GIVE_TAIL] and (s.outcome[s.give_k[head]] != WAITING or s.on[s.give_k[head]] != NOBODY):
        head += 1
    s.n[_GIVE_HEAD] = head
    if head < s.n[_GIVE_TAIL] and (s.give_us[head] < at_us or (s.give_us[head] == at_us and s.give_seq[head] < seq)):
        at_us, seq, what = s.give_us[head], s.give_seq[head], _GIVES_UP
    for i in range(s.n[ACTIVE]):
        u = s.order[i]
        if s.next_us[u] < at_us or (s.next_us[u] == at_us and s.next_seq[u] < seq):
            at_us, seq, what = s.next_us[u], s.next_seq[u], u
    return at_us, what


@_compiled
def _happen(s: State, what: int, at_us: int) -> bool:
    """Do one event; tell whether the number of outstanding requests may be another after it."""
    if what >= 0:
        _last_tokens(s, what, at_us)
        return True
    if what == _GIVES_UP:
        k = s.give_k[s.n[_GIVE_HEAD]]
        s.n[_GIVE_HEAD] += 1
        return bool(_remove(s, k, at_us, TIMED_OUT))
    kind, k = s.heap_kind[0], s.heap_k[0]
    _drop_first(s)
    if kind == _FIRST:
        _first_token(s, k, at_us)
        return False
    if kind == _ARRIVE:
        _arrive(s, k, at_us)
        return True
    return bool(_remove(s, k, at_us, CANCELLED))


@_compiled
def run(s: State, before_us: int, instances: int) -> bool:
    """Do everything due before `before_us`; true: what it tells has to be taken first, then call again."""
    full = s.latency.size - s.pace_us.size - 1
    while s.n[LATENCIES] < full and s.n[FIRST_SERVED] < s.served_us.size:
        at_us, what = _next_event(s)
        arrival_us = s.arrival_us[s.n[NEXT]]
        if min(at_us, arrival_us) >= before_us:
            return False
        if at_us <= arrival_us:
            if not _happen(s, what, at_us):
                continue
        else:
            at_us, k = arrival_us, s.n[NEXT]
            s.n[NEXT] += 1
            if s.before.size > 0 and s.before[k] != NOBODY and not _may_start(s, k, at_us):
                continue
            _arrive(s, k, at_us)
        _set_gauge(s, at_us, s.n[OUTSTANDING] / instances)
    return True
