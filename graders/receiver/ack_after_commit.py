"""Step `ack_after_commit`: the ACK is a promise about what is stored, so it exists only after COMMIT."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from graders.engine.explore import explore
from graders.engine.processes import Child, Job
from graders.engine.rules import Call, Case, Step
from graders.engine.world import World
from graders.receiver.applying import SHORT_WAIT, crash_books, new_chapter, new_store, tell_calls
from graders.receiver.ledger import (
    LONG,
    another_delta,
    books_after,
    connection,
    expect_books,
    make_events,
    mixed_events,
)
from graders.receiver.probes import CONSUME

STEP = Step("ack_after_commit", public=("consume_line",))

Report = Mapping[str, Any]
ACK_WORDS = ("ACK ", "'ACK", '"ACK')  # ROLLBACK is none of them


@STEP.rule(0.5)
def ack(case: Case) -> None:
    """A line that was processed gives exactly `ACK <seq>` and an LF, and its event is committed by then."""
    events = mixed_events(case, 12)
    path, another = new_store(case), case.new_folder() / "another.db"
    lines = [line_of(event) for event in events]

    def called(number: int, report: Report) -> None:
        again, seq = divmod(number, len(lines))
        if number == len(lines):
            new_chapter(
                case, "the same process, which has consumed the same lines, opens another store, which is not there yet"
            )
        expect_ack(case, lines[seq], report, seq)
        cause = "what one store has been told is taken for what the other one holds" if again else ""
        found_in = another if again else path
        expect_books(case, found_in, books_after(events[: seq + 1]), f"once the ACK of {seq} exists", cause)

    consume(case, path, lines, called, then=another)


@STEP.rule(0.5)
def duplicate(case: Case) -> None:
    """A duplicate gets the same ACK again, so that the publisher can stop resending, and adds nothing."""
    known = LONG
    events = mixed_events(case, known + 1)
    path = new_store(case, events[:known])
    order = [known - 1, 0, 9, 10, 999, 1000, *case.random.sample(range(known), 4), known, known, 0]

    def called(number: int, report: Report) -> None:
        expect_ack(case, lines[number], report, order[number])
        have = known + (number >= order.index(known))
        cause = "" if number == order.index(known) else "the duplicate was counted again"
        expect_books(case, path, books_after(events[:have]), f"after event {order[number]}", cause)
        new_chapter(case, f"starts as {books_after(events[:have])}")

    lines = [line_of(events[seq]) for seq in order]
    consume(case, path, lines, called)


@STEP.rule(0.5)
def errors(case: Case) -> None:
    """`ProtocolError`, `Conflict`, `Gap` and SQLite's errors reach the caller: there is no ACK for what is not
    stored.
    """
    events = mixed_events(case, 12)
    path = new_store(case, events)
    changed = [(seq, 0 if delta else 7) for seq, delta in events]
    changed += [(seq, another_delta(delta)) for seq, delta in events]
    wrong = [
        (b"EVENT 12 7\r\n", "ProtocolError"),
        (b"EVENT 012 7\n", "ProtocolError"),
        (b"EVENT 12 1001\n", "ProtocolError"),
        (b"EVENT %d 7\n" % 10**56, "ProtocolError"),
        *((line_of(event), "Conflict") for event in changed),
        (b"EVENT 13 7\n", "Gap"),
        (b"EVENT 13 0\n", "Gap"),
        (b"EVENT %d 7\n" % 2**63, "Gap"),
        (b"EVENT %d 7\n" % 10**40, "Gap"),
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
        expect_books(case, path, books_after(events), f"after {wrong[number][1]}")
        new_chapter(case, f"starts as {books_after(events)}")

    consume(case, path, [line for line, _ in wrong], called)
    _while_locked(case, events[0])
    _while_refused(case, events[0])


def _while_locked(case: Case, event: tuple[int, int]) -> None:
    new_chapter(case)
    path = new_store(case)
    with connection(path) as writer:

        def calling(_: Child) -> None:
            writer.execute("BEGIN IMMEDIATE")
            case.story.store("another writer holds the lock, longer than SQLite waits")

        def called(number: int, report: Report) -> None:
            expect_sqlite_error(case, event, report, "database is locked")
            writer.execute("ROLLBACK")
            expect_books(case, path, books_after([]), "after the lock is gone")

        consume(case, path, [line_of(event)], called, calling, before={"0": [SHORT_WAIT]})


def _while_refused(case: Case, event: tuple[int, int]) -> None:
    """SQLite will not write, for one reason and then for another; after that it does."""
    new_chapter(case)
    path = new_store(case)
    refused = "CREATE TEMP TRIGGER refuse BEFORE INSERT ON main.ledger BEGIN SELECT RAISE(ABORT, 'refused'); END"
    before = {
        "0": ["PRAGMA query_only=ON"],
        "1": ["PRAGMA query_only=OFF", refused],
        "2": ["DROP TRIGGER temp.refuse"],
    }
    reasons = ("the database can only be read", "a constraint of the table is broken")

    def called(number: int, report: Report) -> None:
        if number < len(reasons):
            case.story.store(f"SQLite refuses to write: {reasons[number]}")
            expect_sqlite_error(case, event, report, reasons[number])
            expect_books(case, path, books_after([]), "after SQLite's error")
        else:
            told(case, line_of(event), report)
            expect_books(case, path, books_after([event]), "once SQLite writes again")

    consume(case, path, [line_of(event)] * 3, called, before=before)


def expect_sqlite_error(case: Case, event: tuple[int, int], report: Report, reason: str) -> None:
    outcome = told(case, line_of(event), report)
    if not outcome.raised_a("sqlite3.Error"):
        case.fail(
            f"SQLite's error ({reason}) reaches the caller, and there is no ACK",
            f"consume_line {outcome}",
            "the error is caught on the way, or the ACK is made in spite of it",
            "try and finally in consume_line and apply_event",
            where=outcome.place or case.lines_with(*ACK_WORDS),
        )


@STEP.rule(0.5, explores=True)
def committed_first(case: Case) -> None:
    """Killed at any line: an ACK that existed is for an event that the next process finds in the store."""
    explore(case, AckAndDie(make_events(case, 2)))


class AckAndDie:
    """Two lines and a duplicate are consumed and the process is ended; the next consumes them all again."""

    def __init__(self, events: Sequence[tuple[int, int]]) -> None:
        self.events = events
        self.sent = (events[0], events[0], events[1])

    def life(self, world: World) -> Job:
        lines = [line_of(event) for event in self.sent]
        return world.case.job(CONSUME, {"path": str(world.store), "lines": lines}, folder=world.folder)

    def peer(self, case: Case) -> AbstractContextManager[Any] | None:
        return None

    def tell(self, world: World) -> None:
        tell_calls(world, [f"consume_line(con, {line_of(event)!r})" for event in self.sent])

    def after_crash(self, world: World) -> Hashable:
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
        return found

    def after_life(self, world: World) -> bool:
        case = world.case
        for message in world.reports:
            if message.get("event") in ("finished", "loaded"):
                call = case.call(message)
                inner = [case.call(report["call"]) for report in call.returned or []]
                call = next((one for one in inner if one.raised), call)
                if call.raised is not None:
                    case.fail("the lines can be consumed", f"consume_line {call}", where=call.place)
                if sum(report.get("event") == "called" for report in world.reports) != len(self.sent):
                    case.fail_forged("not all calls were reported")
                break
        else:
            case.fail("consume_line comes back", f"the process ended: {world.ending}")
        found = crash_books(world)
        if found != books_after(self.events):
            case.fail(f"in the end the store says {books_after(self.events)}", f"it says {found}", found.trouble())
        return True


def line_of(event: tuple[int, int]) -> bytes:
    return b"EVENT %d %d\n" % event


def told(case: Case, line: bytes, report: Report) -> Call:
    outcome = case.call(report["call"])
    case.story.program(f"consume_line(con, {line!r}) {outcome}")
    return outcome


def consume(
    case: Case,
    path: Path,
    lines: Sequence[bytes],
    called: Callable[[int, Report], None],
    calling: Callable[[Child], None] | None = None,
    before: Mapping[str, Sequence[str]] | None = None,
    then: Path | None = None,
) -> None:
    """Let a child consume `lines`; `called` judges each while the child waits. `before`, `then`: see the probe."""
    arguments = {"path": str(path), "lines": list(lines), "before": before, "then": then and str(then)}
    wanted, numbers = len(lines) * (1 if then is None else 2), []
    with case.start(CONSUME, arguments) as child:

        def answer(message: dict[str, Any]) -> None:
            if message.get("event") == "calling" and calling is not None:
                calling(child)
            elif message.get("event") == "called":
                numbers.append(message["number"])
                called(message["number"], message)

        case.result(child, answer)
    if numbers != [*range(wanted)]:  # it says that it has finished, and was not seen at work
        case.fail_forged(f"of {wanted} lines {len(numbers)} were reported")


def expect_ack(case: Case, line: bytes, report: Report, seq: int) -> None:
    outcome = told(case, line, report)
    if outcome.raised is not None or outcome.returned != b"ACK %d\n" % seq:
        case.fail(
            f"consume_line(con, {line!r}) returns {b'ACK %d' % seq + bytes([10])!r}",
            f"it {outcome}",
            look="the bytes that consume_line builds: ACK, one space, seq, one LF",
            where=outcome.place or case.lines_with(*ACK_WORDS),
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
