"""Two processes that open the same new file: one is held at each stop of its `open_store` while the other opens it."""

from __future__ import annotations

import select
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from graders.engine import store
from graders.engine.processes import Child, Stops, is_asleep
from graders.engine.rules import Broken, Case
from graders.engine.story import Story
from graders.engine.world import STORE, World, live
from graders.receiver.ledger import TABLES, Books, books_of, connection
from graders.receiver.probes import OPEN, OPEN_AND_TOUCH

AT_ONCE = 8  # most of them wait for a lock
OVER = ("finished", "loaded")
Message = dict[str, Any]


def interleave_openers(case: Case) -> None:
    """Raises Broken for the earliest stop at which the two get into each other's way."""
    _meet_a_lock(case)
    count, found = _count_stops(case)
    if case.crew.workshop.strict:
        _expect_nothing_hidden(case, found)
    moments = range(count + 1)

    def run(stops: int) -> Broken | None:
        story = Story()
        try:
            _Openers(case, story, stops).run()
        except Broken as broken:
            broken.story = story
            return broken
        return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for broken in pool.map(run, moments):
            if broken is not None:
                raise broken


def _meet_a_lock(case: Case) -> None:
    """The other process holds the write lock for a moment; a change of `journal_mode` does not wait for that by
    itself.
    """
    folder = case.new_folder()
    (folder / "store.db").touch()  # before the child starts: what lies in its folder then is its own
    with _start(case, folder, "alone", held=False) as child, connection(folder / "store.db") as other:
        _next(case, child, ("ready",))
        other.execute("BEGIN IMMEDIATE")
        case.story.store("process A holds the write lock on the new file for a moment")
        child.go_on()
        while not select.select([child.control], [], [], 0.01)[0] and not _waits(child) and not child.out_of_time:
            pass
        other.execute("ROLLBACK")
        case.story.store("process A lets go")
        _judge_opened(case, case.story, "B", _next(case, child, ("opened", *OVER)))


def _judge_opened(case: Case, story: Story, name: str, message: Message) -> None:
    if message["event"] == "opened":
        story.program(f"open_store in process {name} comes back")
        return
    call = case.call(message)
    if call.raised is None:
        call = case.call(call.returned["call"])
    story.program(f"open_store in process {name} {call}")
    case.fail(
        "two processes that open the same new file at once both succeed",
        f"open_store in process {name} {call}",
        "what one process has looked up is no longer true when it acts on it; or a change of journal_mode met "
        "another's lock, for which SQLite does not wait",
        "look and create in one transaction that starts with BEGIN IMMEDIATE; retry a change to WAL",
        where=call.place,
    )


def _count_stops(case: Case) -> tuple[int, set[str]]:
    """The stops of one `open_store` of a new file, when nobody else is there, and what the next process would find at
    each of them.
    """
    folder = case.new_folder()
    found = {_found(folder)}
    with _start(case, folder, "alone", held=True) as child:
        _next(case, child, ("ready",))
        child.go_on()
        count = 0
        while _next(case, child, ("stop", "opened", *OVER))["event"] == "stop":
            found.add(_found(folder))
            child.go_on()
            count += 1
        return count, found | {_found(folder)}


def _expect_nothing_hidden(case: Case, found: Container[str]) -> None:
    """Seen from outside, at each system call, the file is never in a state in which no stop holds the program."""
    world = World(case, case.new_folder(), None)
    hidden: list[str] = []

    def look() -> None:
        if (now := _found(world.folder)) not in found:
            hidden.append(now)

    live(world, case.job(OPEN, {"path": str(world.store)}, folder=world.folder), on_call=look)
    if hidden:
        case.fail(
            "open_store changes the file line by line, so that it can be held between any two changes",
            "there are moments at which the file is in a state that it has at none of the program's lines",
            "the work is done past the lines of the file: in text that is run as code, or by another process",
            "exec, subprocess, and connections that sqlite3.connect has not made",
        )


def _found(folder: Path) -> str:
    """What the next process would find, to be compared."""
    try:
        contents = store.crash_image(folder / STORE, TABLES)
        return repr(contents) if contents is not None and contents.tables else ""
    except (store.Unreadable, store.Locked) as error:
        return str(error)


def _start(case: Case, folder: Path, name: str, *, held: bool) -> Child:
    arguments = {"path": str(folder / "store.db")}
    return case.start(OPEN_AND_TOUCH, arguments, folder=folder, output=name, stops=Stops("pause") if held else None)


def _next(case: Case, child: Child, wanted: tuple[str, ...]) -> Message:
    """The child's next report with one of the `wanted` names, not answered yet; it goes on over all others."""
    for message in child.messages():
        if message.get("event") in wanted:
            return message
        if message.get("event") == "broke":
            case.fail_untold(message)
        if message.get("ask"):
            child.go_on()
    case.fail_silent(child, "open_store comes back")


class _Openers:
    """Process A, held after `stops` stops of its open_store, and process B, which opens the file meanwhile."""

    def __init__(self, case: Case, story: Story, stops: int) -> None:
        self.case = case
        self.story = story
        self.stops = stops
        self.folder = case.new_folder()

    def run(self) -> None:
        with ExitStack() as stack:
            a = stack.enter_context(_start(self.case, self.folder, "a", held=True))
            b = stack.enter_context(_start(self.case, self.folder, "b", held=False))
            at_a = self.hold(a)
            at_b = self.let_open(b)
            at_a = self.open_through(a, at_a, "A")
            at_b = self.open_through(b, at_b, "B")
            _judge_opened(self.case, self.story, "A", at_a)
            _judge_opened(self.case, self.story, "B", at_b)
            self.touch(a, b)

    def hold(self, a: Child) -> Message:
        """A goes up to its stop and waits there."""
        _next(self.case, a, ("ready",))
        a.go_on()
        for _ in range(self.stops):
            message = _next(self.case, a, ("stop", "opened", *OVER))
            if message["event"] != "stop":
                break
            a.go_on()
        else:
            message = _next(self.case, a, ("stop", "opened", *OVER))
        if message["event"] == "stop":
            line, kind, _ = message["at"]
            place = self.case.program.place(line)
            shown = f"`{place.text.strip()}` (line {line})" if place else "a line of the section that stands in"
            self.story.program(
                f"process A is in open_store and is held {'inside' if kind == 'statement' else 'at'} {shown}"
            )
        return message

    def let_open(self, b: Child) -> Message | None:
        """B opens the file, unless A keeps it waiting: None then."""
        _next(self.case, b, ("ready",))
        b.go_on()
        self.story.program("process B opens the same file")
        while not select.select([b.control], [], [], 0.02)[0]:
            if _waits(b) or b.out_of_time:
                self.story.program("process B waits for A's lock")
                return None
        return _next(self.case, b, ("opened", *OVER))

    def open_through(self, child: Child, message: Message | None, name: str) -> Message:
        """The process goes on to the end of its open_store."""
        if message is None or message["event"] == "stop":
            if message is not None:
                child.go_on()
                self.story.program(f"process {name} goes on")
            message = _next(self.case, child, ("opened", *OVER))
        return message

    def touch(self, a: Child, b: Child) -> None:
        """Each changes the total once, and both must see both changes."""
        seen = []
        for child in (a, b):
            child.go_on()
            _next(self.case, child, ("touched", *OVER))
        for child in (a, b):
            child.go_on()
            report = self.case.call(_next(self.case, child, OVER)).returned
            seen.append(self.case.call(report["seen"]))
        try:
            found: Books | str = books_of(store.read_live(self.folder / "store.db", TABLES))
        except (store.Unreadable, store.Locked) as error:
            found = str(error)
        expected = Books(-1, 2, ())
        if [str(call) for call in seen] != ["returned 2", "returned 2"] or found != expected:
            self.story.store(f"A and B have each added 1 to the total; A {seen[0]}, B {seen[1]}, from outside: {found}")
            self.case.fail(
                "both processes work on one and the same file, with one row",
                f"after both have added 1 to the total, A {seen[0]}, B {seen[1]}, and from outside it is {found}",
                "one process has reset the other's row, or has put a file of its own in its place",
                "how open_store makes the first row, and whether it renames or removes files",
            )


def _waits(child: Child) -> bool:
    """Asleep at several looks in a row with nothing to say: it waits for a lock."""
    for _ in range(4):
        asleep = is_asleep(child.pid)
        if asleep is None:
            return not select.select([child.control], [], [], 0.3)[0]
        if not asleep or select.select([child.control], [], [], 0.008)[0]:
            return False
    return True
