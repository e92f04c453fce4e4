"""Waiting for a child, with an eye on whether it still does something.

A child that has gone to sleep and does not stir is told from one that a busy machine keeps waiting: the second is ready
to run, and the system says so. So sleep is proof where time alone is none, and a program that waits for what never
comes need not be waited for until its patience ends.
"""

from __future__ import annotations

import select
import signal
import time
from enum import Enum, auto
from pathlib import Path
from typing import Any

from graders.engine.processes import Child
from graders.engine.program import Place
from graders.engine.rules import Case
from graders.receiver.probes import MAIN, SESSION

QUIET = 2.0  # seconds of unbroken sleep after which a child is given up; nothing in a right program sleeps so long
LOOK_EVERY = 0.25  # seconds
BETWEEN_LOOKS = 0.01  # seconds, where sleep is expected soon
TIME_TO_ANSWER = 1.0  # seconds for a sleeping child to say where it sleeps


class News(Enum):
    """What a wait came to."""

    READY = auto()  # a socket has something
    OVER = auto()  # the child has made its last report, or has ended
    ASLEEP = auto()  # the child sleeps, and nothing will wake it
    LATE = auto()  # the child's time is up


def wait(child: Child, *sockets: Any) -> News:
    """Until one of the sockets has something, or the child is over, given up, or out of time."""
    pulse, since = None, time.monotonic()
    while True:
        if child.over():
            return News.OVER
        now = time.monotonic()
        if now >= child.deadline:
            return News.LATE
        ready = select.select([*sockets, *child.watched()], [], [], min(LOOK_EVERY, child.deadline - now))[0]
        if any(sock in ready for sock in sockets):
            return News.READY
        found = None if ready else _pulse(child.pid)
        if found is None or found != pulse:
            pulse, since = found, now
        elif time.monotonic() - since >= QUIET:
            return News.ASLEEP


def until_asleep(child: Child) -> None:
    """Until the child has gone to sleep, and stays asleep from one look to the next. Not for ever: a child need not."""
    deadline = time.monotonic() + QUIET
    pulse = None
    while time.monotonic() < deadline and not child.over():
        found = _pulse(child.pid)
        if found is not None and found == pulse:
            return
        pulse = found
        select.select([], [], [], BETWEEN_LOOKS)


def where_it_sleeps(case: Case, child: Child) -> Place | None:
    """The line of the learner's at which a sleeping child waits; None where it cannot tell."""
    if child.job.probe not in (SESSION, MAIN):
        return None  # another program by now: the signal would end it
    child.signal(signal.SIGUSR1)
    deadline = time.monotonic() + TIME_TO_ANSWER
    while time.monotonic() < deadline and not child.ended():
        message = child.waiting_message()
        if message is None:
            select.select(child.watched(), [], [], max(0.0, deadline - time.monotonic()))
        elif message.get("event") == "where":
            places = [case.program.place(int(line), str(function)) for line, function in message["frames"]]
            return next((place for place in reversed(places) if place is not None), None)
    return None


def _pulse(pid: int) -> tuple[str, ...] | None:
    """What changes when any thread of the process runs; None while one does, while a process of its own works for it,
    or where the system does not tell.
    """
    found = []
    try:
        for thread in sorted(Path(f"/proc/{pid}/task").iterdir()):
            fields = dict(
                line.split(":\t", 1) for line in (thread / "status").read_text().splitlines() if ":\t" in line
            )
            if not fields["State"].startswith("S") or (thread / "children").read_text():
                return None
            found += [thread.name, fields["voluntary_ctxt_switches"], fields["nonvoluntary_ctxt_switches"]]
    except (OSError, KeyError):
        return None
    return tuple(found)
