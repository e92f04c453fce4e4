"""The story of a run: what happened, in order, in the lanes in which it happened."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Lane(StrEnum):
    PUBLISHER = "publisher"
    RECEIVER = "receiver"
    STORE = "store"


@dataclass(frozen=True)
class Event:
    lane: Lane
    text: str


LONGEST_STORY = 60  # events shown; of a longer story the beginning and the end
KEPT_BEGINNING = 12


class Story:
    """Collects events; several threads may add to it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._lock = threading.Lock()

    def publisher(self, text: str) -> None:
        self._add(Lane.PUBLISHER, text)

    def receiver(self, text: str) -> None:
        self._add(Lane.RECEIVER, text)

    def store(self, text: str) -> None:
        self._add(Lane.STORE, text)

    def _add(self, lane: Lane, text: str) -> None:
        with self._lock:
            self.events.append(Event(lane, text))

    def lines(self) -> list[str]:
        return tell(self.events)


def tell(events: Sequence[Event]) -> list[str]:
    """One numbered line an event, the lane in front."""
    width = max(len(lane) for lane in Lane)
    lines = [f"{number:>2}. {event.lane:<{width}} | {event.text}" for number, event in enumerate(events, start=1)]
    if len(lines) > LONGEST_STORY:
        left_out = len(lines) - LONGEST_STORY
        lines[KEPT_BEGINNING : KEPT_BEGINNING + left_out] = [f" … {left_out} more …"]
    return lines


def show_bytes(data: bytes, longest: int = 80) -> str:
    """Bytes as a reader likes them: plain text where it is, escapes where not, cut where long."""
    text = repr(data)[2:-1]
    return f"`{text}`" if len(text) <= longest else f"`{text[:longest]}…` ({len(data)} bytes)"
