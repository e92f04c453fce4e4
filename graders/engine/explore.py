"""Ending a program at every stop that matters, restarting it, and judging what is left.

First one run in which the child waits at every stop while the judge notes the state of the world: a hash of the store's
files, the bytes that the peer has seen, and the bytes that it has sent. What comes after a crash can only depend on
that. Then a real process is ended with SIGKILL, and a real process is started again: once at every line that was
executed, and once at the first and at the last stop of every distinct state. Nothing is judged before it is proved
that the kill fired where it was asked for.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from graders.engine import store
from graders.engine.processes import KILLED, Child, Ending, Job, JudgeBroke, Stops
from graders.engine.rules import Broken, Case
from graders.engine.story import Story
from graders.verdict import Exploration

TRIES = 3  # a program that takes another path each time may miss the stop
MOST_STOPS = 20_000
KILLS_AT_ONCE = max(2, os.cpu_count() or 1)


class Peer(Protocol):
    """The other side of the network, as a state machine that the explorer feeds."""

    def sockets(self) -> Sequence[Any]:
        """What to watch for reading."""

    def pump(self, story: Story) -> None:
        """Take what has arrived and answer; never waits."""

    def finish(self, story: Story) -> None:
        """The program's life is over: take what it still sent, up to the end of its connection."""

    def state(self) -> tuple[bytes, bytes]:
        """Bytes seen and bytes sent so far."""


@dataclass
class World:
    """One run's surroundings: its folder, its peer, the story, and what the processes reported and how they ended."""

    case: Case
    folder: Path
    peer: Peer | None
    story: Story = field(default_factory=Story)
    reports: list[dict[str, Any]] = field(default_factory=list)
    ending: Ending | None = None
    last_words: str = ""

    @property
    def store(self) -> Path:
        return self.folder / "store.db"


class Scenario(Protocol):
    """What a unit explores: how a life of the program starts, and what must hold after a crash and after recovery."""

    def first(self, world: World) -> Job:
        """The life that is ended."""

    def again(self, world: World) -> Job:
        """The life after it."""

    def peer(self) -> AbstractContextManager[Peer] | None:
        """The other side of the network, or None."""

    def tell(self, world: World) -> None:
        """Put into the story what the life that was ended has reported."""

    def after_crash(self, world: World) -> None:
        """Raises Broken where what is left breaks a promise already."""

    def after_recovery(self, world: World) -> None:
        """Raises Broken where the next life did not put things right."""


@dataclass(frozen=True)
class Stop:
    """A stop of the program, and the state of the world there."""

    at: tuple[int, str, int]
    state: tuple[str, bytes, bytes]

    @property
    def line(self) -> int:
        return self.at[0]


def explore(case: Case, scenario: Scenario) -> None:
    """Kill and restart at every line and in every state. Raises Broken with the story of the earliest failing run."""
    started = time.monotonic()
    stops = _enumerate(case, scenario)
    chosen = _choose(stops)
    failures: dict[int, Broken] = {}
    fired: set[int] = set()
    lock = threading.Lock()

    def run(number: int) -> None:
        with lock:
            if failures and min(failures) < number:
                return  # an earlier run fails already, and that is the one that will be told
        try:
            if _crash_and_recover(case, scenario, chosen[number]):
                fired.add(number)
        except Broken as broken:
            with lock:
                failures[number] = broken

    with ThreadPoolExecutor(KILLS_AT_ONCE) as pool:
        for result in [pool.submit(run, number) for number in range(len(chosen))]:
            result.result()
    states = {stop.state for stop in stops}
    kills = min(failures) + 1 if failures else len(fired)
    case.exploration += Exploration(len(stops), len(states), kills, round(time.monotonic() - started, 3))
    if failures:
        raise failures[min(failures)]
    if missed := states - {chosen[number].state for number in fired}:
        raise JudgeBroke(
            f"{len(missed)} of {len(states)} states were never met again: the program takes another path each time"
        )


def _choose(stops: Sequence[Stop]) -> list[Stop]:
    """The stops at which a process is really ended, in the order of the run."""
    by_line: dict[int, int] = {}
    first: dict[object, int] = {}
    last: dict[object, int] = {}
    for number, stop in enumerate(stops):
        by_line.setdefault(stop.line, number)
        first.setdefault(stop.state, number)
        last[stop.state] = number
    return [stops[number] for number in sorted({*by_line.values(), *first.values(), *last.values()})]


def _enumerate(case: Case, scenario: Scenario) -> list[Stop]:
    stops: list[Stop] = []
    with scenario.peer() or nullcontext() as peer:
        world = World(case, case.new_folder(), peer)

        def note(at: tuple[int, str, int]) -> None:
            if peer is not None:
                peer.pump(world.story)
            seen, sent = peer.state() if peer is not None else (b"", b"")
            stops.append(Stop(at, (store.fingerprint(world.store), seen, sent)))

        child = _live(world, replace(scenario.first(world), stops=Stops("pause")), note)
        if child.timed_out:
            _tell_on(case, world)
            case.fail_silent(child, "the program comes to its end when nothing is done to it")
        if world.ending == KILLED or len(stops) > MOST_STOPS:
            raise JudgeBroke(f"the run that looks for stops ended after {len(stops)}: {world.ending}")
        try:
            scenario.after_recovery(world)
        except Broken:
            _tell_on(case, world)
            raise
    return stops


def _crash_and_recover(case: Case, scenario: Scenario, stop: Stop) -> bool:
    """Whether the kill fired. A stop that threads have moved may not be met again; its state is met at others."""
    for _ in range(TRIES):
        with scenario.peer() or nullcontext() as peer:
            world = World(case, case.new_folder(), peer)
            _live(world, replace(scenario.first(world), stops=Stops("kill", stop.at)))
            fired = world.ending == KILLED and bool(world.reports) and world.reports[-1].get("event") == "killing"
            if not fired:
                continue
            where = case.program.place(stop.line)
            shown = f"`{where.text.strip()}` (line {where.line})" if where else "the section that stands in"
            moment = {"line": "before", "return": "on the way out of", "statement": "inside"}[stop.at[1]]
            scenario.tell(world)
            world.story.receiver(f"the power goes out {moment} {shown}: SIGKILL")
            try:
                scenario.after_crash(world)
                world.reports.clear()
                world.story.receiver("starts again: a new process, the same file")
                child = _live(world, scenario.again(world))
                if child.timed_out:
                    case.fail_silent(child, "the program comes to its end after the restart")
                scenario.after_recovery(world)
            except Broken as broken:
                broken.where = broken.where or where
                broken.story = world.story
                raise
            return True
    return False


def _live(world: World, job: Job, on_stop: Any = None) -> Child:
    """One life of the program, from start to end, with the peer at work."""
    with world.case.crew.start(job) as child:
        while not child.timed_out:
            watched = [child.control, *(world.peer.sockets() if world.peer else ())]
            left = max(0.0, child.deadline - time.monotonic())
            ready, _, _ = select.select(watched, [], [], left)
            if world.peer is not None and len(ready) > (child.control in ready):
                world.peer.pump(world.story)
            if child.control not in ready and ready:
                continue
            message = child.next_message()
            while message is not None:
                if message.get("event") == "stop":
                    at = tuple(message["at"])
                    if on_stop is not None:
                        on_stop(at)
                elif message.get("event") == "broke":
                    raise RuntimeError(f"the probe broke: {message.get('error')}")
                else:
                    world.reports.append(message)
                if message.get("ask"):
                    child.go_on()
                message = child.waiting_message()
            if child.closed:
                break
        world.ending = child.ending()
        world.last_words = child.standard_error()
    if world.peer is not None:
        world.peer.finish(world.story)
    return child


def _tell_on(case: Case, world: World) -> None:
    case.story.events += world.story.events
