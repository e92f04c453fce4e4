"""Step `ack_after_commit`: the ACK is a promise about what is stored, so it exists only after COMMIT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from graders.engine.explore import World, explore
from graders.engine.processes import Child, Job
from graders.engine.rules import Call, Case, Step
from graders.receiver.applying import SHORT_WAIT, crash_books, new_store, tell_calls
from graders.receiver.ledger import books_after, connection, expect_books, make_events
from graders.receiver.probes import CONSUME

STEP = Step("ack_after_commit", public=("consume_line",))

Report = Mapping[str, Any]


@STEP.rule(0.5)
def ack(case: Case) -> None:
    """A line that was processed gives exactly `ACK <seq>` and an LF, and its event is committed by then."""
    events = make_events(case, 12)
    path = new_store(case)

    def called(number: int, report: Report) -> None:
        expect_ack(case, lines[number], report, number)
        expect_books(case, path, books_after(events[: number + 1]), f"once the ACK of {number} exists")

    lines = [line_of(event) for event in events]
    consume(case, path, lines, called)


@STEP.rule(0.5)
def duplicate(case: Case) -> None:
    """A duplicate gets the same ACK again, so that the publisher can stop resending, and adds nothing."""
    events = make_events(case, 3)
    path = new_store(case, events)
    again = [events[2], events[0], events[1], events[2]]

    def called(number: int, report: Report) -> None:
        expect_ack(case, lines[number], report, again[number][0])
        expect_books(case, path, books_after(events), "after the duplicate", "the duplicate was counted again")

    lines = [line_of(event) for event in again]
    consume(case, path, lines, called)


@STEP.rule(0.5)
def errors(case: Case) -> None:
    """`ProtocolError`, `Conflict`, `Gap` and SQLite's errors reach the caller: there is no ACK for what is not
    stored.
    """
    events = make_events(case, 3)
    path = new_store(case, events[:2])
    wrong = [
        (b"EVENT 2 7\r\n", "ProtocolError"),
        (b"EVENT 02 7\n", "ProtocolError"),
        (b"EVENT 1 %d\n" % (events[1][1] + 1), "Conflict"),
        (b"EVENT 4 7\n", "Gap"),
        (b"EVENT %d 7\n" % 2**63, "Gap"),
    ]

    def called(number: int, report: Report) -> None:
        outcome = told(case, wrong[number][0], report)
        if not outcome.raised_a(wrong[number][1]):
            case.fail(
                f"consume_line({wrong[number][0]!r}) raises {wrong[number][1]}",
                f"it {outcome}",
                "the error is caught on the way, or the ACK is made in spite of it",
                "try and finally in consume_line",
                where=outcome.place,
            )
        expect_closed(case, report)
        expect_books(case, path, books_after(events[:2]), f"after {wrong[number][1]}")

    consume(case, path, [line for line, _ in wrong], called)
    _while_locked(case, events[0])


def _while_locked(case: Case, event: tuple[int, int]) -> None:
    path = new_store(case)
    with connection(path) as writer:

        def calling(_: Child) -> None:
            writer.execute("BEGIN IMMEDIATE")
            case.story.store("another writer holds the lock, longer than SQLite waits")

        def called(number: int, report: Report) -> None:
            outcome = told(case, line_of(event), report)
            if not outcome.raised_a("sqlite3.Error"):
                case.fail(
                    "SQLite's error (database is locked) reaches the caller, and there is no ACK",
                    f"consume_line {outcome}",
                    "the error is caught on the way, or the ACK is made in spite of it",
                    "try and finally in consume_line and apply_event",
                    where=outcome.place or case.lines_with("ACK"),
                )
            writer.execute("ROLLBACK")
            expect_books(case, path, books_after([]), "after the lock is gone")

        consume(case, path, [line_of(event)], called, calling, before=[SHORT_WAIT])


@STEP.rule(0.5)
def committed_first(case: Case) -> None:
    """Killed at any line: an ACK that existed is for an event that the next process finds in the store."""
    explore(case, AckAndDie(make_events(case, 2)))


class AckAndDie:
    """Two lines and a duplicate are consumed and the process is ended; the next consumes them all again."""

    def __init__(self, events: Sequence[tuple[int, int]]) -> None:
        self.events = events
        self.sent = (events[0], events[0], events[1])

    def first(self, world: World) -> Job:
        lines = [line_of(event) for event in self.sent]
        return world.case.job(CONSUME, {"path": str(world.store), "lines": lines}, folder=world.folder)

    def again(self, world: World) -> Job:
        lines = [line_of(event) for event in self.events]
        return world.case.job(CONSUME, {"path": str(world.store), "lines": lines}, folder=world.folder)

    def peer(self) -> AbstractContextManager[Any] | None:
        return None

    def tell(self, world: World) -> None:
        tell_calls(world, [f"consume_line(con, {line_of(event)!r})" for event in self.sent])

    def after_crash(self, world: World) -> None:
        acks = [
            report["call"]["returned"]
            for report in world.reports
            if report.get("event") == "called" and "returned" in report["call"]
        ]
        found = crash_books(world)
        promised = max((seq for seq, _ in self.events if b"ACK %d\n" % seq in acks), default=-1)
        if found.last < promised:
            world.case.fail(
                f"event {promised}, whose ACK existed, is in the store",
                f"the next process finds {found}",
                "the ACK was made before COMMIT: the publisher may forget the event, and then nobody has it",
                "the order of COMMIT and of what makes the ACK",
            )

    def after_recovery(self, world: World) -> None:
        case = world.case
        for message in world.reports:
            if message.get("event") in ("finished", "loaded"):
                call = case.call(message)
                inner = [case.call(report["call"]) for report in call.returned or []]
                call = next((one for one in inner if one.raised), call)
                if call.raised is not None:
                    case.fail("the lines can be consumed", f"consume_line {call}", where=call.place)
                break
        else:
            case.fail("consume_line comes back", f"the process ended: {world.ending}")
        found = crash_books(world)
        if found != books_after(self.events):
            case.fail(f"in the end the store says {books_after(self.events)}", f"it says {found}", found.trouble())


def line_of(event: tuple[int, int]) -> bytes:
    return b"EVENT %d %d\n" % event


def told(case: Case, line: bytes, report: Report) -> Call:
    outcome = case.call(report["call"])
    case.story.receiver(f"consume_line(con, {line!r}) {outcome}")
    return outcome


def consume(
    case: Case,
    path: Path,
    lines: Sequence[bytes],
    called: Callable[[int, Report], None],
    calling: Callable[[Child], None] | None = None,
    before: Sequence[str] = (),
) -> None:
    """Let a child consume `lines`; `called` judges each while the child waits."""
    with case.start(CONSUME, {"path": str(path), "lines": list(lines), "before": list(before)}) as child:

        def answer(message: dict[str, Any]) -> None:
            if message.get("event") == "calling" and calling is not None:
                calling(child)
            elif message.get("event") == "called":
                called(message["number"], message)

        case.result(child, answer)


def expect_ack(case: Case, line: bytes, report: Report, seq: int) -> None:
    outcome = told(case, line, report)
    if outcome.raised is not None or outcome.returned != b"ACK %d\n" % seq:
        case.fail(
            f"consume_line(con, {line!r}) returns {b'ACK %d' % seq + bytes([10])!r}",
            f"it {outcome}",
            look="the bytes that consume_line builds: ACK, one space, seq, one LF",
            where=outcome.place or case.lines_with("ACK"),
        )
    expect_closed(case, report)


def expect_closed(case: Case, report: Report) -> None:
    if report["in_transaction"]:
        case.fail(
            "no transaction is open when consume_line comes back",
            "one is open: the ACK promises what is not stored yet",
            "an outer BEGIN, or a COMMIT that comes too late",
            "BEGIN and COMMIT in consume_line and apply_event",
            where=case.lines_with("BEGIN", "COMMIT"),
        )
