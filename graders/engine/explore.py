"""Ending a program at every stop that matters, restarting it, and judging what is left.

First a run in which the child waits at every stop while the judge notes the state of the world: a hash of the files
that the program has made, the bytes that the peer has seen, and the bytes that it has sent. What comes after a crash
can only depend on that. Then a real process is ended with SIGKILL, and a real process is started again: at the first
and at the last stop of every state, at every other line, and at a seeded sample of all other stops, which has to come
out as its state did, or the judge says that it could not tell. Nothing is judged before it is proved that the kill
fired where it was asked for.

A crash leaves something that the next life starts from. That life is looked at in the same way, from wherever a crash
can leave off, and is ended once in every state that it comes by: the second crash before recovery from the first has
ended, the third, and so on, until no crash leaves anything new.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from graders.engine.processes import KILLED, Detail, JudgeBroke, Stops
from graders.engine.program import Place
from graders.engine.rules import Broken, Case, Fate, NotMet
from graders.engine.stops import MOMENTS, At, name_of
from graders.engine.store import COMPANIONS
from graders.engine.story import Event
from graders.engine.world import STORE, Scenario, World, live
from graders.verdict import Exploration

TRIES = 3  # a program that takes another path each time may miss the stop
SAMPLE = 8  # stops beside those that stand for their state
MOST_STOPS = 50_000
MOST_SECONDS = 300.0  # of one exploration; a right program's takes two, on a very busy machine twenty
DEEPEST = 3  # crashes, one after the other
MOST_LIVES = 10
MOST_REMAINS = 256  # different things that crashes of one program can leave; a right one has about four an event
Kind = tuple[Hashable, Hashable, Hashable]  # of remains: the contract's view, the peer's memory, which files there are
OVER: At = (0, "end", 1)  # in a run: this life came to its end by itself, and another was wanted
KILLS_AT_ONCE = 1 + (os.cpu_count() or 1)  # a core waits for the judge now and then; more only take turns
ANOTHER_PATH = "the program takes another path each time, by chance, by the clock, or by what the judge does not see"


@dataclass(frozen=True)
class Stop:
    """A stop of the program, and the number of the state of the world there, from 0 in the order of the run."""

    at: At
    state: int

    @property
    def line(self) -> int:
        return self.at[0]


def told(at: At, where: Place | None) -> str:
    """When the process is ended there, in words; `where` is the line as a place in the learner's file."""
    line, kind, _ = at
    if not line:
        return "between two lines" if kind == "instruction" else "in a library that the program uses"
    shown = f"`{where.text.strip()}` (line {where.line})" if where else "the section that stands in"
    return MOMENTS[kind].format(shown)


@dataclass(frozen=True)
class Left:
    """What the contract says about what a crash has left; the scenario's word."""

    what: Hashable


@dataclass(frozen=True)
class Remains:
    """What crashes have left: what the next life starts from, and the story of how it came to that."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    memory: Hashable = None
    run: tuple[At, ...] = ()
    places: tuple[int, ...] = ()  # of the run's stops, each among the stops of its life
    story: tuple[Event, ...] = ()


@dataclass(frozen=True)
class Life:
    """The stops of one life that nobody ended, and whether other threads were at work in it."""

    start: Remains
    stops: Sequence[Stop]
    traffic: Sequence[tuple[bytes, bytes]]  # what the peer has seen and sent, by state
    threads: bool

    @property
    def states(self) -> set[int]:
        return {stop.state for stop in self.stops}


def explore(case: Case, scenario: Scenario, *, whole: bool = False) -> None:
    """Kill and restart in every state and at every line of the step's own section; with `whole`, of all sections.

    Raises Broken with the story of the shortest run that fails.
    """
    explorer = _Explorer(case, scenario, whole)
    if case.replay is None:
        explorer.explore()
    else:
        explorer.replay(case.replay)


def ends_of_states(stops: Sequence[Stop]) -> list[tuple[int, int]]:
    """For each state the places of its first and its last stop, in the order of the run."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, stop in enumerate(stops):
        first.setdefault(stop.state, number)
        last[stop.state] = number
    return [(number, last[state]) for state, number in first.items()]


def chosen(stops: Sequence[Stop], rows: Container[int], random: Random) -> tuple[list[int], list[int]]:
    """The stops of a first life at which a process is really ended: those with a run of their own, and those that share
    one. The former are the first and last of every state and a sample of the rest, the latter one for every other line.
    """
    alone = {number for ends in ends_of_states(stops) for number in ends}
    rest = sorted(set(range(len(stops))) - alone)
    alone |= set(random.sample(rest, min(SAMPLE, len(rest))))
    met = {stops[number].line for number in alone}
    together: list[int] = []
    for number, stop in enumerate(stops):
        if stop.at[1] == "line" and stop.line in rows and stop.line not in met:
            met.add(stop.line)
            together.append(number)
    return sorted(alone), together


class _Explorer:
    """One exploration: what was found, and where it broke."""

    def __init__(self, case: Case, scenario: Scenario, whole: bool) -> None:
        self.case = case
        self.scenario = scenario
        self.rows: Container[int] = case.program.all_rows if whole else case.program.own_rows
        self.lock = threading.Lock()
        self.deadline = time.monotonic() + MOST_SECONDS
        self.kills = 0
        self.first_life: Life | None = None
        self.fired: set[int] = set()  # states of it in which a kill fired
        self.left: dict[int, Kind] = {}  # what a kill in each state of the first life has left
        self.known: set[Kind] = set()  # what crashes have left that is looked at already
        self.new: dict[Kind, Remains] = {}
        self.failures: dict[tuple[int, int], Broken] = {}  # by length of the run, and place of its last stop
        self.after_many: Broken | None = None  # what only a long run of crashes has broken
        self.lines: Sequence[int] = []

    def explore(self) -> None:
        started = time.monotonic()
        points = states = 0
        aside: list[Future[None]] = []  # what nothing else waits for
        starts: Sequence[Remains] = [Remains()]
        with self.world(starts[0]) as nothing:  # a crash that leaves nothing leaves the first life's start
            self.known.add(self.remains(nothing, self.scenario.after_crash(nothing)))
        with ThreadPoolExecutor(KILLS_AT_ONCE) as pool:
            try:
                while starts and not self.failures:
                    lives = list(pool.map(self.look, starts))
                    points += sum(len(life.stops) for life in lives)
                    states += sum(len(life.states) for life in lives)
                    self.first_life = self.first_life or lives[0]
                    work = [run for life in lives for run in self.plan(life)]
                    futures = [pool.submit(run) for run in work]
                    aside += [pool.submit(self.flicker, lives[0], half) for half in self.take_lines()]
                    for done in futures:
                        done.result()
                    starts = self.next_starts()
                for done in aside:
                    done.result()
                if self.case.crew.workshop.strict and not self.failures and self.after_many is None:
                    self.look_from_outside()
            finally:
                seconds = round(time.monotonic() - started, 3)
                self.case.exploration += Exploration(points, states, self.kills, seconds)
        assert self.first_life is not None
        if self.case.fates is not None:
            self.case.fates += self.fates(self.first_life)
        if self.failures:
            raise self.failures[min(self.failures)]
        if self.after_many is not None:
            raise self.after_many
        if missed := self.first_life.states - self.fired:
            raise JudgeBroke(
                f"{len(missed)} of the {len(self.first_life.states)} states of the first life were never met again: "
                f"{ANOTHER_PATH}"
            )

    def fates(self, life: Life) -> Iterator[Fate]:
        """What came of the crashes in each state of the first life."""
        broken = {life.stops[size[1]].state: failure for size, failure in self.failures.items() if size[0] == 1}
        for state in sorted(life.states):
            stops = [stop.at for stop in life.stops if stop.state == state]
            left = self.left.get(state)
            seen, sent = life.traffic[state]
            yield Fate(stops, str(left[0]) if isinstance(left, tuple) else "", seen, sent, broken.get(state))

    def next_starts(self) -> list[Remains]:
        """What crashes have left that was not there before, in the order in which one run would come by it."""
        self.known |= self.new.keys()
        if len(self.known) > MOST_REMAINS:
            self.case.fail(
                "crashes leave a store, and a journal of SQLite's",
                f"crashes of this program leave more than {MOST_REMAINS} different things",
                "each start leaves something behind that is there for ever",
            )
        starts = sorted(self.new.values(), key=lambda remains: remains.places)
        self.new = {}
        return starts

    def look(self, start: Remains) -> Life:
        """Let a life go to its end, and note the state of the world at each of its stops."""
        numbers: dict[tuple[str, bytes, bytes], int] = {}
        stops: list[Stop] = []
        threads = False
        with self.world(start) as world:

            def note(message: Mapping[str, object]) -> bool:
                nonlocal threads
                if len(stops) > MOST_STOPS:
                    self.case.fail("the program comes to its end soon", f"it takes more than {MOST_STOPS} steps")
                if world.peer is not None:
                    world.peer.pump(world.story)
                if stops:
                    stops.extend(Stop(tuple(at), stops[-1].state) for at in message["unseen"])  # type: ignore[attr-defined]
                number = numbers.setdefault(world.state(), len(numbers))
                stops.append(Stop(tuple(message["at"]), number))  # type: ignore[arg-type]
                threads = threads or bool(message["threads"])
                recovers = bool(start.run) and not self.case.thorough
                return not (recovers and world.peer is not None and world.peer.caught_up())

            detail: Detail = "line" if start.run and not self.case.thorough else "instruction"
            child = live(world, replace(self.scenario.life(world), stops=Stops("pause", detail=detail)), note)
            if child.timed_out:
                expected = "the program comes to its end after the restart" if start.run else "the program ends"
                self.case.fail_silent(child, expected)
            if world.ending == KILLED:
                self.case.fail_silent(child)
            if not self.scenario.after_life(world):
                self.remember(start, OVER, len(stops), world, self.remains(world, None))
        return Life(start, stops, [state[1:] for state in numbers], threads)

    @contextmanager
    def world(self, start: Remains) -> Iterator[World]:
        """A world in which the crashes of `start` have happened; what breaks in it is told with their story."""
        if time.monotonic() > self.deadline:
            raise JudgeBroke(
                f"{MOST_SECONDS:g} s were not enough: each life of the program takes long, or the machine is too busy"
            )
        with self.scenario.peer(self.case) or nullcontext() as peer:
            world = World(self.case, self.case.new_folder(), peer)
            world.put(start.files)
            if peer is not None and start.memory is not None:
                peer.recall(start.memory)
            world.story.events += start.story
            try:
                yield world
            except Broken as broken:
                broken.story = world.story
                broken.crashes = broken.crashes or start.run
                raise

    def plan(self, life: Life) -> list[Callable[[], None]]:
        """The runs to make from the start of `life`."""
        if life.start.run:
            return [partial(self.once, life, first) for first, _ in ends_of_states(life.stops)]
        alone, self.lines = chosen(life.stops, self.rows, self.case.random)
        return [partial(self.alone, life, number) for number in alone]

    def take_lines(self) -> list[Sequence[int]]:
        """The lines that share a run, once, in two runs of the same length."""
        lines, self.lines = self.lines, []
        middle = len(lines) // 2
        return [half for half in (lines[:middle], lines[middle:]) if half]

    def alone(self, life: Life, number: int) -> None:
        """End the first life at one stop, and let the second go to its end."""
        self.attempt(life, [number], recover=True)

    def once(self, life: Life, number: int) -> None:
        """End a life that recovers. What is left is nothing new, or it is looked at next."""
        self.attempt(life, [number], recover=False)

    def flicker(self, life: Life, run: Sequence[int]) -> None:
        """The power fails again and again, in each life one line further; the last life goes to its end."""
        while run and not self.beaten(life, run[0]):
            try:
                met = self.crashes(life, run, recover=True)
            except Broken as broken:
                for number in run:  # the shortest run that fails is the one to tell
                    self.alone(life, number)
                with self.lock:
                    self.after_many = self.after_many or broken
                return
            if met == len(run):
                return
            # A life that does not come by the next stop starts from what the last crash left: that one is judged alone.
            for number in run[max(0, met - 1) : met + 1]:
                self.alone(life, number)
            run = run[met + 1 :]

    def attempt(self, life: Life, run: Sequence[int], recover: bool) -> None:
        """Threads may have moved a stop, so that it is not met; its state is met at others."""
        try:
            for _ in range(TRIES):
                if self.beaten(life, run[0]) or self.crashes(life, run, recover):
                    return
        except Broken as broken:
            self.fail((len(life.start.run) + len(run), run[-1]), broken)

    def beaten(self, life: Life, number: int) -> bool:
        """Whether a shorter run fails already: that is the one that will be told."""
        with self.lock:
            return (
                self.case.fates is None
                and bool(self.failures)
                and min(self.failures) < (len(life.start.run) + 1, number)
            )

    def fail(self, size: tuple[int, int], broken: Broken) -> None:
        with self.lock:
            self.failures[size] = broken

    def crashes(self, life: Life, run: Sequence[int], recover: bool) -> int:
        """How many kills fired, up to the first stop that was not met."""
        done: list[At] = []
        with self.world(life.start) as world, self.told_with(life.start, done):
            for number in run:
                if done:
                    world.story.program("starts again, and is ended again")
                left = self.crash(world, life.stops[number].at, done)
                if left is None:
                    break
                if len(run) == 1:
                    self.compare(life, number, world, left.what)
            else:
                if recover:
                    self.recover(world)
        return len(done)

    def replay(self, crashes: Sequence[At]) -> None:
        """Make one run again. Raises NotMet where the program does not come by a stop, or comes by it no more."""
        done: list[At] = []
        with self.world(Remains()) as world, self.told_with(Remains(), done):
            for at in crashes:
                if done:
                    world.story.program("starts again, and is ended again")
                if at == OVER:
                    live(world, self.scenario.life(world))
                    self.scenario.after_life(world)
                    done.append(at)
                elif self.crash(world, at, done) is None:
                    raise NotMet(name_of(at))
            self.recover(world)
            self.case.story.events += world.story.events

    @contextmanager
    def told_with(self, start: Remains, done: Sequence[At]) -> Iterator[None]:
        """What breaks is told with the crashes `done`, and points at the last of them."""
        try:
            yield
        except Broken as broken:
            broken.crashes = (*start.run, *done)
            broken.where = broken.where or (self.case.program.place(done[-1][0]) if done else None)
            raise

    def crash(self, world: World, at: At, done: list[At]) -> Left | None:
        """End a life at `at`, and give back what it has left; None where the stop was not met."""
        detail: Detail = "instruction" if at[1] == "instruction" else "line"
        live(world, replace(self.scenario.life(world), stops=Stops("kill", at, detail)))
        if world.ending != KILLED or not world.reports or world.reports[-1].get("event") != "killing":
            return None
        with self.lock:
            self.kills += 1
        done.append(at)
        self.scenario.tell(world)
        world.story.program(f"the power goes out {told(at, self.case.program.place(at[0]))}: SIGKILL")
        left = Left(self.scenario.after_crash(world))
        world.reports.clear()
        return left

    def recover(self, world: World) -> None:
        """Let lives go to their ends until all is done."""
        for _ in range(MOST_LIVES):
            world.story.program("starts again: a new process, the same file" if world.lives else "starts")
            child = live(world, self.scenario.life(world))
            if child.timed_out:
                self.case.fail_silent(child, "the program comes to its end after the restart")
            if self.scenario.after_life(world):
                return
        self.case.fail(
            "started again and again, the program gets on",
            f"after {MOST_LIVES} lives it has still not done its work",
            "it ends as if all were well before anything is stored and acknowledged",
        )

    def compare(self, life: Life, number: int, world: World, left: Hashable) -> None:
        """Take note of what a crash has left. Two crashes in one state have to leave the same."""
        remains = self.remains(world, left)
        state = life.stops[number].state
        if not life.start.run:
            with self.lock:
                self.fired.add(state)
                if self.left.setdefault(state, remains) != remains and not life.threads:
                    raise JudgeBroke(
                        f"two crashes in one state left different things ({self.left[state]} and {remains}): "
                        f"{ANOTHER_PATH}"
                    )
        self.remember(life.start, life.stops[number].at, number, world, remains)

    def look_from_outside(self) -> None:
        """One more life, in which nobody tells of stops: it is held at each of its system calls, and what is there then
        is what a crash would leave. What the crashes have not left, the next life has to cope with as well. So a
        program that has blinded the watcher in its own process is seen all the same.
        """
        known = {remains[:2] for remains in {*self.known, *self.left.values()}}
        states: set[Hashable] = set()
        new: list[Remains] = []
        with self.world(Remains()) as world:

            def look() -> None:
                if (state := world.state()) in states:
                    return
                states.add(state)
                mark = len(world.story.events)
                world.story.program("the power goes out at one of its system calls")
                remains = self.remains(world, self.scenario.after_crash(world))
                if remains[:2] not in known:
                    known.add(remains[:2])
                    memory = world.peer.memory() if world.peer is not None else ()
                    new.append(Remains(world.files(), memory, story=tuple(world.story.events)))
                del world.story.events[mark:]

            child = live(world, self.scenario.life(world), on_call=look)
            if child.timed_out:
                self.case.fail_silent(child, "the program ends")
            self.scenario.after_life(world)
        for start in new:
            with self.world(start) as world:
                self.recover(world)

    def remains(self, world: World, left: Hashable) -> Kind:
        """All that the next life depends on, told apart as far as the contract does."""
        return left, world.peer.memory() if world.peer is not None else None, _shape(world.files())

    def remember(self, start: Remains, at: At, place: int, world: World, remains: Kind) -> None:
        """The next life has to be looked at, too, where it starts from something new."""
        places = (*start.places, place)
        with self.lock:
            if remains in self.known or len(start.run) >= DEEPEST:
                return
            if remains not in self.new or places < self.new[remains].places:  # threads must not decide
                memory = world.peer.memory() if world.peer is not None else None
                story = tuple(world.story.events)
                self.new[remains] = Remains(world.files(), memory, (*start.run, at), places, story)


def _shape(files: Mapping[str, bytes]) -> Hashable:
    """Which files of the store's there are, whether there are others, and which of them hold something. SQLite turns a
    journal off by emptying its beginning; what a program leaves beside its store may have new names in each life, and
    may become more.
    """
    full = {name: bool(data[:1].strip(b"\0")) for name, data in files.items()}
    known = sorted((name, full[name]) for name in full if name.removeprefix(STORE) in COMPANIONS)
    return tuple(known), frozenset(full[name] for name in full if name.removeprefix(STORE) not in COMPANIONS)
