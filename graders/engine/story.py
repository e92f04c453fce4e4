"""The story of a run: what happened, in order, in the lanes in which it happened."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum


class Lane(StrEnum):
    """Who does it: the other side of the network, the learner's program, or its store. A unit has names for them."""

    PEER = "peer"
    PROGRAM = "program"
    STORE = "store"


@dataclass(frozen=True)
class Event:
    lane: Lane
    text: str


Lanes = tuple[str, str, str]  # what a unit calls its lanes, in the order of `Lane`

LONGEST_STORY = 60  # events shown; of a longer story the beginning and the end
KEPT_BEGINNING = 12


class Story:
    """Collects events; several threads may add to it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._lock = threading.Lock()

    def peer(self, text: str) -> None:
        self._add(Lane.PEER, text)

    def program(self, text: str) -> None:
        self._add(Lane.PROGRAM, text)

    def store(self, text: str) -> None:
        self._add(Lane.STORE, text)

    def _add(self, lane: Lane, text: str) -> None:
        with self._lock:
            self.events.append(Event(lane, text))

    def lines(self, lanes: Lanes) -> list[str]:
        """One numbered line an event, the lane's name in front."""
        names = dict(zip(Lane, lanes, strict=True))
        width = max(map(len, lanes))
        told = [(names[event.lane], event.text) for event in self.events]
        lines = [f"{number:>2}. {name:<{width}} | {text}" for number, (name, text) in enumerate(told, start=1)]
        return shorten(lines)


def shorten(lines: list[str]) -> list[str]:
    if len(lines) > LONGEST_STORY:
        left_out = len(lines) - LONGEST_STORY
        lines[KEPT_BEGINNING : KEPT_BEGINNING + left_out] = [f" … {left_out} more …"]
    return lines


def show_bytes(data: bytes, longest: int = 80) -> str:
    """Bytes as a reader likes them: plain text where it is, escapes where not, cut where long."""
    text = repr(data)[2:-1]
    return f"`{text}`" if len(text) <= longest else f"`{text[:longest]}…` ({len(data)} bytes)"
