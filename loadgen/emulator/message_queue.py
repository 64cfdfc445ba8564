"""The SQS queue that an EventBridge rule fills: each message at least once, some twice, some late, in no order."""

from __future__ import annotations

import random

import msgspec

from loadgen.emulator.config import EmulatorConfig, to_us

VISIBILITY_US = 30_000_000


class Message(msgspec.Struct, kw_only=True):
    """A message; it can be received from `visible_us` on, unless it was deleted."""

    message_id: str
    body: str
    visible_us: int
    receipt: str | None = None


class MessageQueue:
    """Messages in no order. What was received and not deleted comes back after half a minute."""

    def __init__(self, config: EmulatorConfig, seed: int) -> None:
        self._faults = config.faults
        self._random = random.Random(f"{seed}:events")
        self._messages: list[Message] = []
        self._sent: set[str] = set()

    def send(self, key: str, at_us: int, body: str) -> None:
        """Put a message in, once for each `key`; now and then twice, or late."""
        if key in self._sent:
            return
        self._sent.add(key)
        copies = 2 if self._random.random() < self._faults.duplicate_event_share else 1
        for _ in range(copies):
            late_us = to_us(self._random.random() * self._faults.late_event_s)
            message = Message(message_id=self._uuid(), body=body, visible_us=at_us + late_us)
            self._messages.append(message)

    def receive(self, now_us: int, limit: int) -> list[Message]:
        """Return messages that can be received now; they are hidden for a while."""
        found = [message for message in self._messages if message.visible_us <= now_us]
        chosen = self._random.sample(found, min(limit, len(found)))
        for message in chosen:
            message.visible_us = now_us + VISIBILITY_US
            message.receipt = self._uuid()
        return chosen

    def delete(self, receipt: str) -> bool:
        """Delete a received message; tell whether the receipt is known."""
        before = len(self._messages)
        self._messages = [message for message in self._messages if message.receipt != receipt]
        return len(self._messages) < before

    def _uuid(self) -> str:
        return f"{self._random.getrandbits(128):032x}"
