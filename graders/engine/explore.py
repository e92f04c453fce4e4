"""Ending a program at every stop that matters, restarting it, and judging what is left.

First one run in which the child waits at every stop while the judge notes the state of the world: a hash of the store's
files, the bytes that the peer has seen, and the bytes that it has sent. What comes after a crash can only depend on
that. Then a real process is ended with SIGKILL, and a real process is started again: at the first and at the last stop
of every distinct state, and at every other line of the step's section, or of the whole program, that was executed.
Nothing is judged before it is proved that the kill fired where it was asked for.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from graders.engine import store
from graders.engine.processes import KILLED, Child, Ending, Job, JudgeBroke, Stops
from graders.engine.program import Place
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

    def told(self, where: Place | None) -> str:
        """When the process is ended there, in words; `where` is the line as a place in the learner's file."""
        moment = {"line": "before", "return": "on the way out of", "statement": "inside"}[self.at[1]]
        shown = f"`{where.text.strip()}` (line {where.line})" if where else "the section that stands in"
        return f"{moment} {shown}"


def explore(case: Case, scenario: Scenario, *, whole: bool = False) -> None:
    """Kill and restart in every state and at every line of the step's own section; with `whole`, of all sections.

    Raises Broken with the story of the earliest failing run.
    """
    started = time.monotonic()
    stops = _enumerate(case, scenario)
    hunt = _Hunt(case, scenario, stops)
    with ThreadPoolExecutor(KILLS_AT_ONCE) as pool:
        rows = case.program.all_rows if whole else case.program.own_rows
        for result in [pool.submit(hunt.go, run) for run in _plan(stops, rows)]:
            result.result()
    states = {stop.state for stop in stops}
    seconds = round(time.monotonic() - started, 3)
    case.exploration += Exploration(len(stops), len(states), hunt.kills, seconds)
    if hunt.failures:
        raise hunt.failures[min(hunt.failures)]
    if missed := states - {stops[number].state for number in hunt.fired}:
        raise JudgeBroke(
            f"{len(missed)} of {len(states)} states were never met again: the program takes another path each time"
        )


def _plan(stops: Sequence[Stop], rows: Container[int]) -> list[list[int]]:
    """The runs: at which stops in each the process is ended, life after life.

    A run for the first and one for the last stop of every state. All other lines share one run, in which the power
    fails again and again, in each life one line further.
    """
    first: dict[object, int] = {}
    last: dict[object, int] = {}
    for number, stop in enumerate(stops):
        first.setdefault(stop.state, number)
        last[stop.state] = number
    alone = {*first.values(), *last.values()}
    together: list[int] = []
    met = {stops[number].line for number in alone}
    for number, stop in enumerate(stops):
        if stop.line in rows and stop.line not in met:
            met.add(stop.line)
            together.append(number)
    return [*([number] for number in sorted(alone)), *([together] if together else [])]


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


class _Hunt:
    """The kills of one exploration: where they fired, and which runs break a promise, by the stop that does it."""

    def __init__(self, case: Case, scenario: Scenario, stops: Sequence[Stop]) -> None:
        self.case = case
        self.scenario = scenario
        self.stops = stops
        self.lock = threading.Lock()
        self.kills = 0
        self.fired: set[int] = set()
        self.failures: dict[int, Broken] = {}

    def go(self, run: Sequence[int]) -> None:
        """Judge a run, unless an earlier stop fails already: that is the one that will be told."""
        if len(run) == 1:
            self.one(run[0])
            return
        while run and not self.beaten(run[0]):
            try:
                met = self.attempt(run)
            except Broken as broken:
                for number in run:  # the shortest run that fails is the one to tell
                    self.one(number)
                self.fail(len(self.stops), broken)
                return
            if met == len(run):
                return
            # A life that does not come by the next stop starts from what the last crash left: that one is judged alone.
            for number in run[max(0, met - 1) : met + 1]:
                self.one(number)
            run = run[met + 1 :]

    def one(self, number: int) -> None:
        """End the process at one stop. Threads may have moved it, so that it is not met; its state is met at others."""
        try:
            for _ in range(TRIES):
                if self.beaten(number) or self.attempt([number]):
                    return
        except Broken as broken:
            self.fail(number, broken)

    def beaten(self, number: int) -> bool:
        with self.lock:
            return bool(self.failures) and min(self.failures) < number

    def fail(self, number: int, broken: Broken) -> None:
        with self.lock:
            self.failures[number] = broken

    def attempt(self, run: Sequence[int]) -> int:
        """How many kills of the run fired, up to the first stop that was not met."""
        crashes = _Crashes(self.case, self.scenario, [self.stops[number] for number in run])
        try:
            return crashes.judge()
        finally:
            with self.lock:
                self.kills += crashes.fired
                self.fired |= set(run[: crashes.fired])


class _Crashes:
    """One run: a process is ended at one stop after the other, each in a life of its own; the last goes to its end."""

    def __init__(self, case: Case, scenario: Scenario, run: Sequence[Stop]) -> None:
        self.case = case
        self.scenario = scenario
        self.run = run
        self.fired = 0
        self.where: Place | None = None

    def judge(self) -> int:
        """Judge what each crash leaves and what the last life makes of it; gives back how many kills fired."""
        with self.scenario.peer() or nullcontext() as peer:
            world = World(self.case, self.case.new_folder(), peer)
            try:
                for stop in self.run:
                    if not self.crash(world, stop):
                        return self.fired
                self.recover(world)
            except Broken as broken:
                broken.where = broken.where or self.where
                broken.story = world.story
                raise
        return self.fired

    def crash(self, world: World, stop: Stop) -> bool:
        """End a life at `stop`; False where it was not met."""
        if self.fired:
            world.story.receiver("starts again, and is ended again")
        _live(world, replace(self.scenario.first(world), stops=Stops("kill", stop.at)))
        if world.ending != KILLED or not world.reports or world.reports[-1].get("event") != "killing":
            return False
        self.fired += 1
        self.where = self.case.program.place(stop.line)
        self.scenario.tell(world)
        world.story.receiver(f"the power goes out {stop.told(self.where)}: SIGKILL")
        self.scenario.after_crash(world)
        world.reports.clear()
        return True

    def recover(self, world: World) -> None:
        world.story.receiver("starts again: a new process, the same file")
        child = _live(world, self.scenario.again(world))
        if child.timed_out:
            self.case.fail_silent(child, "the program comes to its end after the restart")
        self.scenario.after_recovery(world)


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
