"""A child that applies events to a store, the second writer that it may meet, and what is found after it has died."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graders.engine.processes import Child, is_asleep
from graders.engine.rules import Call, Case
from graders.engine.store import Unreadable, is_there
from graders.engine.story import Story
from graders.engine.world import World
from graders.receiver.ledger import Books, books_after, found_after_crash, make_store
from graders.receiver.probes import APPLY

Message = Mapping[str, Any]
SHORT_WAIT = "PRAGMA busy_timeout=50"  # milliseconds, so that a lock that stays is reported soon
LOCK_HELD = 1.0  # seconds for which the contract says that a second writer may hold the lock
TORN = "ledger, total and cursor are not changed in one and the same transaction"
ONE = "what stands between BEGIN and COMMIT, and what is committed on its own"


def one_event(event: tuple[int, int]) -> dict[str, Any]:
    return {"seq": event[0], "delta": event[1]}


def new_store(case: Case, events: Sequence[tuple[int, int]] = (), *, wal: bool = False) -> Path:
    """A store of the contract's shape in a folder of its own, with `events` processed."""
    path = case.new_folder() / "store.db"
    make_store(path, events, wal=wal)
    case.story.store(f"starts as {books_after(events)}" + (", in WAL mode" if wal else ""))
    return path


def new_chapter(case: Case, *found: str) -> None:
    """What was told so far went well and is not needed for what comes: the story begins anew, with what is `found`."""
    case.story = Story()
    for text in found:
        case.story.store(text)


class Applying:
    """One child that opens a store and makes a list of calls of `apply_event`."""

    def __init__(self, case: Case, path: Path, calls: Sequence[Mapping[str, Any]], before: Sequence[str] = ()) -> None:
        self.case = case
        self.path = path
        self.calls = calls
        self.before = before
        self.calls_made = 0

    def go(
        self,
        called: Callable[[int, Message], None],
        calling: Callable[[Child], None] | None = None,
        at_fault: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Run; `called` judges each call while the child waits, `calling` comes before it, `at_fault` inside it."""
        arguments = {"path": str(self.path), "calls": [dict(call) for call in self.calls], "before": list(self.before)}
        with self.case.start(APPLY, arguments) as child:

            def answer(message: dict[str, Any]) -> None:
                match message.get("event"):
                    case "calling" if calling is not None:
                        calling(child)
                    case "fault" if at_fault is not None:
                        at_fault(message)
                    case "called":
                        self.calls_made += 1
                        called(message["number"], message)

            self.case.result(child, answer)
        if self.calls_made != len(self.calls):
            self.case.fail_forged(f"of {len(self.calls)} calls {self.calls_made} were reported")

    def told(self, number: int, report: Message) -> Call:
        call, outcome = self.calls[number], self.case.call(report["call"])
        self.case.story.program(f"apply_event(con, {call['seq']}, {call['delta']}) {outcome}")
        return outcome

    def expect_return(self, number: int, report: Message, value: bool, cause: str = "", look_at: str = "") -> None:
        call, outcome = self.calls[number], self.told(number, report)
        if outcome.raised is not None or outcome.returned != value or outcome.returned is None:
            self.case.fail(
                f"apply_event(con, {call['seq']}, {call['delta']}) returns {value}",
                f"it {outcome}",
                cause,
                look_at or "what apply_event returns on each of its ways out",
                where=outcome.place,
            )

    def expect_raise(
        self,
        number: int,
        report: Message,
        error: str,
        why: str,
        cause: str = "",
        look_at: str = "how seq is compared with last",
    ) -> None:
        call, outcome = self.calls[number], self.told(number, report)
        if not outcome.raised_a(error):
            told = f"apply_event(con, {call['seq']}, {call['delta']}) raises {error}: {why}"
            self.case.fail(told, f"it {outcome}", cause, look_at, where=outcome.place)

    def expect_closed(self, number: int, report: Message, cause: str = "") -> None:
        if report["in_transaction"]:
            self.case.fail(
                "no transaction is open when apply_event is left",
                "one is open: others are locked out, and the next BEGIN fails",
                cause or "a way out without COMMIT or ROLLBACK",
                "every return and every error between BEGIN and COMMIT",
                where=self.case.lines_with("BEGIN"),
            )


class SecondWriter:
    """Another process's writer, played by the judge: it holds the lock, and applies its event while the child waits.

    `events` are all that the store has when it is done; the last one is its own.
    """

    def __init__(self, case: Case, path: Path, events: Sequence[tuple[int, int]]) -> None:
        self.case = case
        self.path = path
        self.event = events[-1]
        self.after = books_after(events)
        self.committing = threading.Event()
        self.over = threading.Event()
        self.thread: threading.Thread | None = None

    def __enter__(self) -> SecondWriter:
        is_there(self.path)
        self.con = sqlite3.connect(self.path, isolation_level=None, timeout=2.0, check_same_thread=False)
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if self.thread is not None:
            self.thread.join()
        self.con.close()

    def start(self, child: Child) -> None:
        """Take the lock, then go on in a thread."""
        self.con.execute("BEGIN IMMEDIATE")
        self.case.story.store("a second writer holds the write lock")
        self.thread = threading.Thread(target=self.write, args=(child.pid,), daemon=True)
        self.thread.start()

    def write(self, pid: int) -> None:
        deadline = time.monotonic() + 3
        while not is_asleep(pid) and time.monotonic() < deadline and not self.over.wait(0.005):
            pass  # until the child waits for the lock
        if self.over.wait(LOCK_HELD):
            return
        self.con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", self.event)
        self.con.execute("UPDATE checkpoint SET last = ?, total = ? WHERE id = 1", (self.after.last, self.after.total))
        self.case.story.store(f"after a second the second writer applies event {self.event[0]} and commits")
        self.committing.set()
        with contextlib.suppress(sqlite3.OperationalError):  # a reader that will not let go: the child is told too
            self.con.execute("COMMIT")


def tell_calls(world: World, calls: Sequence[str]) -> None:
    """The calls that a probe has made, with what came of those that had come back."""
    for report in world.reports:
        if report.get("event") == "calling":
            world.story.program(f"{calls[report['number']]} is called")
        elif report.get("event") == "called":
            world.story.program(f"it {world.case.call(report['call'])}")


def crash_books(world: World) -> Books:
    """What the next process finds, into the world's story."""
    try:
        found = found_after_crash(world.store)
    except Unreadable as error:
        world.story.store(f"the next process cannot read it: {error}")
        world.case.fail("the next process can read the store", str(error), TORN, ONE)
    world.story.store(f"the next process finds {found}")
    return found
