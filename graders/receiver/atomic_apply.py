"""Step `atomic_apply`: total, ledger and cursor move together or not at all, whatever goes wrong in between."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from graders.engine import store
from graders.engine.explore import World, explore
from graders.engine.processes import KILLED, Child, Ending, Job
from graders.engine.rules import Case, Step
from graders.engine.store import Locked, Unreadable
from graders.receiver.applying import (
    ONE,
    SHORT_WAIT,
    TORN,
    Applying,
    Message,
    SecondWriter,
    crash_books,
    new_store,
    one_event,
    tell_calls,
)
from graders.receiver.framing import expect_apart
from graders.receiver.ledger import (
    TABLES,
    Books,
    books_after,
    books_of,
    connection,
    expect_books,
    found_after_crash,
    look,
    make_events,
)
from graders.receiver.probes import APPLY, FAULTS

STEP = Step("atomic_apply", public=("Conflict", "Gap", "apply_event"))


@STEP.rule(0.5)
def applies(case: Case) -> None:
    """The next event goes into ledger, total and cursor, is committed, and `apply_event` returns `True`."""
    for wal in (False, True):
        path = new_store(case, wal=wal)
        events = [*make_events(case, 4), (4, 0)]
        run = Applying(case, path, [{"seq": seq, "delta": delta} for seq, delta in events])

        def called(number: int, report: Message, run: Applying = run, events: Any = events) -> None:
            run.expect_return(number, report, True)
            run.expect_closed(number, report)
            expect_books(case, run.path, books_after(events[: number + 1]), f"after event {number}")

        run.go(called)


@STEP.rule(0.25)
def duplicate(case: Case) -> None:
    """An event that was processed already changes nothing, and `apply_event` returns `False`."""
    known = 150  # more than the publisher's log keeps: the ledger must know them all the same
    events = make_events(case, known + 1)
    path = new_store(case, events[:known])
    order = [known - 1, known - 2, 0, case.random.randrange(known), known, known, 0, 1]
    run = Applying(case, path, [one_event(events[seq]) for seq in order])

    def called(number: int, report: Message) -> None:
        run.expect_return(number, report, number == order.index(known))
        run.expect_closed(number, report)
        have = known + (number >= order.index(known))
        expect_books(case, path, books_after(events[:have]), f"after event {order[number]}", COUNTED_TWICE)

    run.go(called)


COUNTED_TWICE = "the same event was counted again, or a row was changed for it"


@STEP.rule(0.25)
def conflict(case: Case) -> None:
    """An event that was processed with another delta raises `Conflict`, and nothing changes."""
    events = make_events(case, 4)
    path = new_store(case, events)
    changed = [(seq, delta + 1) for seq, delta in reversed(events)] + [(0, -events[0][1]), (2, 0)]
    run = Applying(case, path, [{"seq": seq, "delta": delta} for seq, delta in changed])

    def called(number: int, report: Message) -> None:
        why = "the publisher has changed an event that was counted already"
        run.expect_raise(
            number, report, "Conflict", why, "the delta in the ledger is not compared with the one that came"
        )
        run.expect_closed(number, report)
        expect_books(case, path, books_after(events), "after the conflict")

    run.go(called)


@STEP.rule(0.25)
def gap(case: Case) -> None:
    """An event beyond the next one raises `Gap`, however large its seq, and nothing changes."""
    events = make_events(case, 3)
    for have in (3, 0):
        path = new_store(case, events[:have])
        beyond = [have + 1, have + 2, have + case.random.randrange(10, 10**6), 2**63 - 1, 2**63, 2**64, 10**40]
        run = Applying(case, path, [{"seq": seq, "delta": 5} for seq in beyond])

        def called(number: int, report: Message, run: Applying = run, have: int = have) -> None:
            why = f"event {have} is missing"
            cause = "a cursor that jumps makes the missing event look processed; SQLite holds integers below 2**63 only"
            run.expect_raise(number, report, "Gap", why, cause)
            run.expect_closed(number, report)
            expect_books(case, run.path, books_after(events[:have]), "after the gap")

        run.go(called)


@STEP.rule(0.5)
def lock_first(case: Case) -> None:
    """The write lock is taken before the cursor is read: `apply_event` waits for a second writer and sees what it
    wrote.
    """
    case.side_by_side(lambda case: _wait_for_writer(case, wal=False), lambda case: _wait_for_writer(case, wal=True))


def _wait_for_writer(case: Case, *, wal: bool) -> None:
    events = make_events(case, 2)
    path = new_store(case, wal=wal)
    run = Applying(case, path, [one_event(events[1])])
    with SecondWriter(case, path, events[0]) as writer:

        def called(number: int, report: Message) -> None:
            if not writer.committing.is_set():
                outcome = run.told(number, report)
                case.fail(
                    "apply_event waits while a second writer holds the lock for a second",
                    f"it did not wait: it {outcome}",
                    "the lock is not asked for, or the connection's timeout is too short",
                    "the first statement of apply_event, and the timeout in sqlite3.connect",
                    where=outcome.place,
                )
            cause = "`last` was read before the lock was there, and was stale when it was used"
            run.expect_return(number, report, True, cause, "BEGIN IMMEDIATE comes first, and only then the SELECT")
            run.expect_closed(number, report)
            expect_books(case, path, books_after(events), "after both writers", cause)

        run.go(called, writer.start)


@STEP.rule(0.25)
def fault_window(case: Case) -> None:
    """`fault` runs once, after the total has changed and before `last` has, inside the transaction that nobody else
    sees.
    """
    for wal in (False, True):
        events = make_events(case, 3)
        path = new_store(case, events[:2], wal=wal)
        before, after = books_after(events[:2]), books_after(events)
        run = Applying(case, path, [{"seq": 2, "delta": events[2][1], "fault": "ask"}])

        def at_fault(message: dict[str, Any], path: Path = path, before: Books = before, after: Books = after) -> None:
            inside = case.call(message["inside"])
            case.story.receiver(f"fault() runs; the same connection finds (last, total) = {inside.returned!r}")
            if not message["in_transaction"]:
                case.fail(
                    "fault() runs inside the open transaction",
                    "no transaction is open",
                    "what was changed before is committed already, or there was no BEGIN",
                    "the place of COMMIT",
                    where=case.lines_with("fault("),
                )
            if inside.returned != (before.last, after.total):
                case.fail(
                    f"inside fault(), (last, total) is ({before.last}, {after.total}): total has changed, last has not",
                    f"the same connection finds {inside.returned!r}",
                    "the order is ledger and total, then fault(), then last",
                    "the order of the statements around fault()",
                    where=case.lines_with("fault("),
                )
            _expect_unseen(case, path, before)

        def called(number: int, report: Message, run: Applying = run, path: Path = path, after: Books = after) -> None:
            run.expect_return(number, report, True)
            if report["hook_calls"] != 1:
                where = case.lines_with("fault")
                case.fail("fault() is called once", f"it was called {report['hook_calls']} times", where=where)
            expect_books(case, path, after, "after the commit")

        run.go(called, at_fault=at_fault)


def _expect_unseen(case: Case, path: Path, before: Books) -> None:
    try:
        seen = books_of(store.read_live(path, TABLES, wait=0.2))
    except Locked:
        case.story.store("another connection is told that the database is locked")
        return
    except Unreadable as error:
        case.fail("another connection can read the store during fault()", str(error))
    case.story.store(f"another connection finds {seen}")
    if seen != before:
        case.fail(
            f"during fault(), another connection still finds {before}",
            f"it finds {seen}",
            "a part of the change is committed before the rest",
            "how many COMMITs one event takes; `with con:` commits too",
            where=case.lines_with("COMMIT", "commit(", "with con"),
        )


@STEP.rule(0.5)
def rolls_back(case: Case) -> None:
    """Any error, `KeyboardInterrupt` and `CancelledError` included, undoes everything, and the connection stays
    usable.
    """
    for name in FAULTS:
        events = make_events(case, 2)
        path = new_store(case, events[:1])
        run = Applying(case, path, [{"seq": 1, "delta": events[1][1], "fault": f"raise:{name}"}, one_event(events[1])])

        def called(number: int, report: Message, run: Applying = run, events: Any = events, name: str = name) -> None:
            if number == 1:
                run.expect_return(number, report, True, "the connection was not left in order by the error before")
                expect_books(case, run.path, books_after(events), "after the event was applied again")
                return
            run.told(number, report)
            outcome = case.call(report["call"])
            if outcome.raised is None:
                where = case.lines_with("except", "fault(")
                case.fail(f"{name} from fault() reaches the caller", f"apply_event {outcome}", where=where)
            run.expect_closed(number, report, "the error is not caught, or only `Exception` is: BaseException has more")
            expect_books(case, run.path, books_after(events[:1]), f"after {name}", "a part of the change was kept")

        run.go(called)


@STEP.rule(0.25)
def original_error(case: Case) -> None:
    """The very exception object that was raised reaches the caller, also where SQLite has rolled back by itself."""
    for name in ("ValueError", "Injected", "CancelledError"):
        events = make_events(case, 2)
        run = Applying(case, new_store(case, events[:1]), [{**one_event(events[1]), "fault": f"raise:{name}"}])

        def called(number: int, report: Message, run: Applying = run, name: str = name) -> None:
            run.told(number, report)
            if not report["same_object"]:
                outcome = case.call(report["call"])
                case.fail(
                    f"the {name} that fault() raised reaches the caller, the same object",
                    f"apply_event {outcome}",
                    "it was wrapped in another error, made anew, or swallowed",
                    "`raise` alone passes on what was caught",
                    where=outcome.place,
                )

        run.go(called)
    _rolled_back_by_sqlite(case)


def _rolled_back_by_sqlite(case: Case) -> None:
    """A full disk: SQLite ends the transaction by itself, and a ROLLBACK after that is an error of its own."""
    events = make_events(case, 3)
    path = new_store(case, events[:1])
    ends_transaction = (
        "CREATE TEMP TRIGGER full_disk BEFORE INSERT ON main.ledger WHEN NEW.seq = 1"
        " BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END"
    )
    run = Applying(case, path, [one_event(events[1])], before=[ends_transaction])

    def called(number: int, report: Message) -> None:
        outcome = case.call(report["call"])
        case.story.store("the disk is full: SQLite refuses the row and rolls back by itself")
        run.told(number, report)
        message = outcome.raised.message if outcome.raised else ""
        if "disk is full" not in message or not outcome.raised_a("sqlite3.IntegrityError"):
            case.fail(
                "SQLite's own error, `database or disk is full`, reaches the caller",
                f"apply_event {outcome}",
                "ROLLBACK is sent although no transaction is open any more, and its error hides the first one",
                "con.in_transaction tells whether there is something to roll back",
                where=outcome.place,
            )
        run.expect_closed(number, report)
        expect_books(case, path, books_after(events[:1]), "after the full disk")

    run.go(called)


@STEP.rule(0.25)
def commit_fails(case: Case) -> None:
    """Where COMMIT itself fails because a reader holds its lock, the error comes out and no transaction stays open."""
    events = make_events(case, 2)
    path = new_store(case, events[:1])
    run = Applying(case, path, [one_event(events[1]), one_event(events[1])], before=[SHORT_WAIT])
    with connection(path) as reader:

        def calling(child: Child) -> None:
            if not reader.in_transaction and run.calls_made == 0:
                reader.execute("BEGIN")
                reader.execute("SELECT total FROM checkpoint").fetchall()
                case.story.store("a reader holds its lock: COMMIT must wait, and fails when it has waited long enough")

        def called(number: int, report: Message) -> None:
            outcome = case.call(report["call"])
            if number == 1:
                stored = outcome.returned in (True, False)  # in WAL mode readers do not stand in the way
                if not stored:
                    run.expect_return(number, report, True, "the failed COMMIT left the connection unusable")
                expect_books(case, path, books_after(events), "after the event was applied again")
                return
            run.told(number, report)
            if outcome.raised is None and books_now(case, path) != books_after(events):
                case.fail("an error when COMMIT fails", f"apply_event {outcome}, and nothing was stored")
            cause = "COMMIT stands outside the `try`, or its failure is taken for the end of the transaction"
            run.expect_closed(number, report, cause)
            reader.execute("ROLLBACK")
            case.story.store("the reader ends")

        run.go(called, calling)


def books_now(case: Case, path: Path) -> Books:
    return look(case, path, "meanwhile")


@STEP.rule(0.25)
def exit_in_fault(case: Case) -> None:
    """A process that ends inside `fault` leaves no trace of the event that another process can read."""
    for wal in (False, True):
        for plan, ending in (("exit:41", Ending(41)), ("kill", KILLED)):
            events = make_events(case, 2)
            path = new_store(case, events[:1], wal=wal)
            call = one_event(events[1])
            with case.start(APPLY, {"path": str(path), "calls": [{**call, "fault": plan}]}) as child:
                for message in child.messages():
                    if message.get("event") == "finished":
                        outcome = case.call(message)
                        case.fail("apply_event calls fault()", f"it came back: {outcome}", where=outcome.place)
                    child.go_on()
                if child.ending() != ending:
                    case.fail_silent(child, "the process ends inside fault(), where it was told to")
            case.story.receiver(f"ends inside fault(), with no `finally`: {ending}")
            found = books_found(case, path)
            if found != books_after(events[:1]):
                case.fail(
                    f"the next process finds {books_after(events[:1])}",
                    f"it finds {found}",
                    found.trouble() or "a part of the change was stored before fault()",
                    "what is committed before fault() runs",
                    where=case.lines_with("COMMIT", "commit("),
                )
            _apply_again(case, path, events)


def _apply_again(case: Case, path: Path, events: Sequence[tuple[int, int]]) -> None:
    """A new process applies the last of `events`, of which nothing is left."""
    run = Applying(case, path, [one_event(events[-1])])
    run.go(lambda number, report: run.expect_return(number, report, True))
    expect_books(case, path, books_after(events), "after a new process has applied the event")


def books_found(case: Case, path: Path) -> Books:
    """What a new process finds after a crash, into the story."""
    try:
        found = found_after_crash(path)
    except Unreadable as error:
        case.fail("the next process can read the store", str(error), "the file was torn by the crash", "journal_mode")
    case.story.store(f"the next process finds {found}")
    return found


@STEP.rule(0.5)
def killed_anywhere(case: Case) -> None:
    """Killed at any line and applied again by a new process, every event is counted once, and the books always
    balance.
    """
    explore(case, ApplyAndDie(make_events(case, 2)))


class ApplyAndDie:
    """Two events and a duplicate are applied and the process is ended; the next applies them all again."""

    def __init__(self, events: Sequence[tuple[int, int]]) -> None:
        self.events = events
        self.sent = (events[0], events[0], events[1])

    def first(self, world: World) -> Job:
        calls = [one_event(event) for event in self.sent]
        return world.case.job(APPLY, {"path": str(world.store), "calls": calls}, folder=world.folder)

    def again(self, world: World) -> Job:
        calls = [one_event(event) for event in self.events]
        return world.case.job(APPLY, {"path": str(world.store), "calls": calls}, folder=world.folder)

    def peer(self) -> AbstractContextManager[Any] | None:
        return None

    def tell(self, world: World) -> None:
        tell_calls(world, [f"apply_event(con, {seq}, {delta})" for seq, delta in self.sent])

    def after_crash(self, world: World) -> None:
        found = crash_books(world)
        if found.trouble():
            case = world.case
            case.fail(
                "total is the ledger's sum, last its greatest seq, and there is no hole", found.trouble(), TORN, ONE
            )
        told = [message for message in world.reports if message.get("event") == "called"]
        if len(told) > 1 and found.last < 0:
            world.case.fail(
                "event 0 is stored once apply_event has returned", f"the next process finds {found}", TORN, ONE
            )

    def after_recovery(self, world: World) -> None:
        case = world.case
        for message in world.reports:
            if message.get("event") in ("finished", "loaded"):
                call = case.call(message)
                failed = [case.call(report["call"]) for report in call.returned or []]
                call = next((inner for inner in failed if inner.raised), call)
                if call.raised is not None:
                    world.story.receiver(f"apply_event {call}")
                    case.fail("the events can be applied", f"apply_event {call}", where=call.place)
                break
        else:
            case.fail("apply_event comes back", f"the process ended: {world.ending}")
        found = crash_books(world)
        if found != books_after(self.events):
            case.fail(f"in the end the store says {books_after(self.events)}", f"it says {found}", TORN, ONE)


@STEP.rule(0.25)
def exceptions_apart(case: Case) -> None:
    """`Conflict` and `Gap` can be told apart from each other and from the other exceptions."""
    events = make_events(case, 1)
    calls = [{"seq": 0, "delta": events[0][1] + 1}, {"seq": 5, "delta": 1}]
    run = Applying(case, new_store(case, events), calls)
    run.go(lambda number, report: run.expect_raise(number, report, ("Conflict", "Gap")[number], "as the contract says"))
    expect_apart(case, "Conflict")
    expect_apart(case, "Gap")
