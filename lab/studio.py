"""One program, its store and its publisher, through as many lives as a learner likes, each with real processes.

The publisher is the judge's own: it sends an event, waits for the ACK, sends the next, and sends one of them twice.
What happened is told event by event while it happens. Between two lives no process runs: all that goes on is the file,
and what the publisher remembers.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from graders.engine.probes import AS_MAIN
from graders.engine.processes import KILLED, Child, Crew, Ending, GivenUp, Job, ServerGone, Stops, Workshop
from graders.engine.program import Program
from graders.engine.rules import Case, Unit
from graders.engine.section_writer import is_starter
from graders.engine.sections import NOT_PYTHON, Line, split
from graders.engine.store import Locked, Unreadable, read_live
from graders.engine.story import Event, Lane, Story
from graders.engine.world import World, live
from graders.receiver.ledger import EMPTY, TABLES, Books, books_of, found_after_crash
from graders.receiver.publisher import HOST, StopAndWait
from graders.registry import unit as find_unit
from graders.report.parts import shorten, visible

EVENTS = ((0, 5), (1, -2), (2, 9))
SILENCE = "3"  # seconds after which the receiver gives a silent publisher up
PATIENCE = 12.0  # seconds for one life
COMPANIONS = ("", "-journal", "-wal", "-shm")
MOST_TIMES = 50  # how often a line may be let run before the process is ended there
LONGEST_WORDS = 300
DATA = re.compile(r"`([^`]+)`")

PUBLISHER, RECEIVER, STORE = find_unit("receiver").lanes
NAMES = {Lane.PEER: PUBLISHER, Lane.PROGRAM: RECEIVER, Lane.STORE: STORE}

Kind = Literal["start", "note", "to receiver", "to publisher", "lost", "cut"]


@dataclass(frozen=True)
class Told:
    """One event of the diagram. `words` are bytes on the wire, or a sentence in a lane."""

    lane: str
    kind: Kind
    words: str
    again: bool = False  # bytes that were sent before


@dataclass(frozen=True)
class Position:
    """Where the power goes out: before `line` runs for the `times`-th time in that process."""

    line: int
    times: int = 1


@dataclass(frozen=True)
class Life:
    """What came of one process: how it ended, what the next one finds, and in words what there is to know."""

    wanted: Position | None
    cut: bool
    books: Books | None
    told: str


class Trouble(Exception):
    """Why nothing can be run, in one sentence."""


@dataclass
class Studio:
    """`store` belongs to the studio: it is removed by `reset`. One life at a time; `close` ends the one that runs."""

    source: str
    store: Path
    tell: Callable[[Told], None]
    unit: Unit = field(default_factory=lambda: find_unit("receiver"))
    memory: tuple[int, int, int, int] | None = None
    sent: set[str] = field(default_factory=set)
    crew: Crew | None = None
    closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        texts = self.source.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
        self.program = Program(self.unit.file_name, tuple(Line(text, row) for row, text in enumerate(texts, start=1)))

    def lines(self) -> list[tuple[str, bool]]:
        """The program's lines, and whether the power can go out before each."""
        rows = self.program.statement_rows
        return [(visible(line.text), row in rows) for row, line in enumerate(self.program.lines, start=1)]

    def check(self) -> None:
        """Raises Trouble where the program is not yet one that runs."""
        name = self.unit.file_name
        if not self.source.strip():
            raise Trouble(f"There is no {name} here yet: write the steps first.")
        try:
            compile(self.source, name, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise Trouble(f"{name} is not Python yet: line {error.lineno}: {visible(str(error.msg))}.") from None
        except NOT_PYTHON as error:
            raise Trouble(f"{name} is not Python: {visible(str(error))}.") from None
        names = [step.name for step in self.unit.steps]
        there = split(self.source, names, name)
        for step in names:
            if not there.has(step):
                raise Trouble(f"{name} has no {step} yet: the studio runs the whole program, from its command line on.")
            if is_starter(there.text(step)):
                raise Trouble(f"{step} is not written yet: it still raises NotImplementedError where your code goes.")

    def run(self, at: Position | None = None) -> Life:
        """One process on the store as it is; `at` is where its power goes out. Raises Trouble where that is not
        possible.
        """
        self.check()
        try:
            with Workshop(preload=self.unit.preload) as workshop:
                self._begin(Crew(workshop))
                with StopAndWait(workshop.tcp_socket(), EVENTS) as publisher:
                    return self._live(publisher, at)
        except (GivenUp, ServerGone):
            raise Trouble("The studio was closed.") from None
        finally:
            self.crew = None

    def reset(self) -> None:
        """A new machine: no store, and a publisher that has sent nothing."""
        for suffix in COMPANIONS:
            Path(f"{self.store}{suffix}").unlink(missing_ok=True)
        self.memory = None
        self.sent.clear()

    def close(self) -> None:
        """End the life that runs, and begin no other."""
        with self.lock:
            self.closed = True
            if self.crew is not None:
                self.crew.give_up()

    def _begin(self, crew: Crew) -> None:
        with self.lock:
            if self.closed:
                raise GivenUp
            self.crew = crew

    def _live(self, publisher: StopAndWait, at: Position | None) -> Life:
        if self.memory is not None:
            publisher.recall(self.memory)
        assert self.crew is not None
        case = Case(self.crew, self.program, 0, "studio")
        world = World(case, case.folder, publisher, _Live(self._event))
        command = f"python {self.unit.file_name} HOST PORT {self.store.name}"
        self.tell(Told(RECEIVER, "start", f"a new process starts: {command}"))
        child = live(world, self._job(case, publisher, at))
        if self.closed:
            raise GivenUp
        cut = world.ending == KILLED and any(report.get("event") == "killing" for report in world.reports)
        self._tell_end(world, child, cut, at)
        books, told = self._look(world)
        if books is not None:
            self._tell_lost(books, publisher)
            publisher.committed = books.last
        self.memory = publisher.memory()
        return Life(at, cut, books, " ".join(filter(None, [self._outcome(world, publisher, at, cut), told])))

    def _job(self, case: Case, publisher: StopAndWait, at: Position | None) -> Job:
        stops = Stops("kill", (at.line, "line", at.times)) if at else None
        argv = [HOST, str(publisher.port), str(self.store), "--timeout", SILENCE]
        return case.job(AS_MAIN, folder=case.folder, argv=argv, load=False, stops=stops, patience=PATIENCE)

    # --- what is told ---------------------------------------------------------------------------------------------

    def _event(self, event: Event) -> None:
        """One event of the story, as the diagram wants it."""
        data = DATA.search(event.text)
        if event.lane is Lane.PEER and data and event.text.startswith("sends"):
            words = visible(data[1])
            self.tell(Told(NAMES[event.lane], "to receiver", words, again=words in self.sent))
            self.sent.add(words)
        elif event.lane is Lane.PEER and data and event.text.startswith("receives"):
            self.tell(Told(NAMES[event.lane], "to publisher", visible(data[1])))
            if data[1].startswith("ACK"):
                self._tell_store()
        else:
            self.tell(Told(NAMES[event.lane], "note", visible(shorten(event.text, LONGEST_WORDS))))

    def _tell_store(self) -> None:
        """The publisher has an ACK and has not answered yet: the moment at which the store can be read in peace."""
        try:
            found = str(books_of(read_live(self.store, TABLES, 0)))
        except (Locked, Unreadable) as error:
            found = f"nothing that it can read: {visible(shorten(str(error), LONGEST_WORDS))}"
        self.tell(Told(STORE, "note", f"another process finds {found}"))

    def _tell_end(self, world: World, child: Child, cut: bool, at: Position | None) -> None:
        if cut and at is not None:
            line = self.program.lines[at.line - 1].text.strip()
            told = f"the power goes out before line {at.line}, `{visible(shorten(line, 80))}`: SIGKILL"
            self.tell(Told(RECEIVER, "cut", told))
            return
        late = f"the process does not end, and was ended after {PATIENCE:g} s"
        self.tell(Told(RECEIVER, "note", late if child.timed_out else f"the process ends: {world.ending}"))

    def _look(self, world: World) -> tuple[Books | None, str]:
        """What the next process finds, and why it cannot where it cannot."""
        try:
            books = find_in_copy(self.store)
        except Unreadable as error:
            told = f"the next process cannot read it: {visible(shorten(str(error), LONGEST_WORDS))}"
            self.tell(Told(STORE, "note", told))
            return None, f"The store is broken: {told}."
        self.tell(Told(STORE, "note", f"the next process finds {books}"))
        trouble = books.trouble()
        return books, f"The books do not balance: {trouble}." if trouble else ""

    def _tell_lost(self, books: Books, publisher: StopAndWait) -> None:
        """An event in the store whose ACK never came is what all this is about."""
        if books.last > publisher.acknowledged:
            self.tell(Told(RECEIVER, "lost", f"ACK {books.last} never arrives"))

    def _outcome(self, world: World, publisher: StopAndWait, at: Position | None, cut: bool) -> str:
        if cut and at is not None:
            return f"The process was ended by SIGKILL before line {at.line}, {count(at.times)} time."
        said = [f"Line {at.line} did not run {count(at.times)} time in this process."] if at else []
        if publisher.trouble is not None:
            expected, observed = publisher.trouble
            said.append(f"The publisher does not understand: expected was that {expected}, but {observed}.")
        words = world.last_words.strip().splitlines()
        if world.ending == Ending(0):
            said.append("The session came to its end.")
        else:
            last = f": {visible(shorten(words[-1], LONGEST_WORDS))}" if words else ""
            said.append(f"The process ended by itself, {world.ending}{last}.")
        return " ".join(said)


class _Live(Story):
    """A story that is told while it happens."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        super().__init__()
        self.tell = tell

    def _add(self, lane: Lane, text: str) -> None:
        super()._add(lane, text)
        self.tell(Event(lane, text))


def find_in_copy(store: Path) -> Books:
    """What the next process finds. The copy is made by another process: this one, the learner's notebook, may have
    connections to the file, and a process that closes any descriptor of a file loses all its locks on it.
    """
    with tempfile.TemporaryDirectory(prefix="recovery-lab-") as folder:
        files = [name for suffix in COMPANIONS[:3] if Path(name := f"{store}{suffix}").is_file()]
        if not files:
            return EMPTY
        subprocess.run(["cp", "--", *files, folder], check=True, stdin=subprocess.DEVNULL, capture_output=True)
        return found_after_crash(Path(folder, store.name))


@dataclass(frozen=True)
class Prediction:
    """What the learner expects to be in the store."""

    last: int
    total: int

    def against(self, books: Books | None) -> str:
        """Whether it was right, in one sentence."""
        if books is None:
            return "There is nothing to compare with: the store cannot be read."
        there = f"cursor {books.last}, total {books.total}"
        if (self.last, self.total) == (books.last, books.total):
            return f"✓ You were right: {there}."
        wrong = [name for name, mine, found in self._compared(books) if mine != found]
        return (
            f"✗ You said cursor {self.last}, total {self.total}; there is {there}. Look again at: {', '.join(wrong)}."
        )

    def _compared(self, books: Books) -> Sequence[tuple[str, int, int]]:
        return (("cursor", self.last, books.last), ("total", self.total, books.total))


def count(times: int) -> str:
    """`the 1st`, `the 2nd`, …"""
    ending = "th" if times % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(times % 10, "th")
    return f"the {times}{ending}"


def position(line: Any, times: Any, rows: frozenset[int]) -> Position:
    """A position as somebody has asked for it. Raises Trouble where there is no such."""
    if not isinstance(line, int) or line not in rows:
        raise Trouble("Choose a line on which a statement begins.")
    if not isinstance(times, int) or not 1 <= times <= MOST_TIMES:
        raise Trouble(f"How many times: a whole number from 1 to {MOST_TIMES}.")
    return Position(line, times)
