"""Step `atomic_apply`: total, ledger and cursor move together or not at all, whatever goes wrong in between."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from graders.engine import store
from graders.engine.explore import explore
from graders.engine.processes import KILLED, Child, Ending, Job
from graders.engine.rules import Case, Step
from graders.engine.store import Locked, Unreadable
from graders.engine.world import World
from graders.receiver.applying import (
    ONE,
    SHORT_WAIT,
    TORN,
    Applying,
    Message,
    SecondWriter,
    crash_books,
    new_chapter,
    new_store,
    one_event,
    tell_calls,
)
from graders.receiver.framing import expect_apart
from graders.receiver.ledger import (
    LONG,
    TABLES,
    Books,
    another_delta,
    books_after,
    books_of,
    connection,
    expect_books,
    found_after_crash,
    look,
    make_events,
    mixed_events,
)
from graders.receiver.probes import APPLY, FAULTS

STEP = Step("atomic_apply", public=("Conflict", "Gap", "apply_event"))


@STEP.rule(0.5)
def applies(case: Case) -> None:
    """The next event goes into ledger, total and cursor, is committed, and `apply_event` returns `True`."""
    for wal, have in ((False, 0), (True, 12)):
        events = mixed_events(case, have + 12)
        path = new_store(case, events[:have], wal=wal)
        run = Applying(case, path, [one_event(event) for event in events[have:]])

        def called(number: int, report: Message, run: Applying = run, events: Any = events, have: int = have) -> None:
            run.expect_return(number, report, True)
            run.expect_closed(number, report)
            seq = have + number
            expect_books(case, run.path, books_after(events[: seq + 1]), f"after event {seq}")

        run.go(called)


@STEP.rule(0.25)
def duplicate(case: Case) -> None:
    """An event that was processed already changes nothing, and `apply_event` returns `False`."""
    known = LONG  # more than the publisher's log keeps: the ledger must know them all the same
    events = mixed_events(case, known + 1)
    path = new_store(case, events[:known])
    order = [known - 1, known - 2, 0, *case.random.sample(range(known), 5), known, known, 0, 1, 9, 10]
    run = Applying(case, path, [one_event(events[seq]) for seq in order])

    def called(number: int, report: Message) -> None:
        is_new = number == order.index(known)
        run.expect_return(number, report, is_new)
        run.expect_closed(number, report)
        have = known + (number >= order.index(known))
        cause = "" if is_new else COUNTED_TWICE
        expect_books(case, path, books_after(events[:have]), f"after event {order[number]}", cause)
        new_chapter(case, f"starts as {books_after(events[:have])}")

    run.go(called)


COUNTED_TWICE = "the same event was counted again, or a row was changed for it"


@STEP.rule(0.25)
def conflict(case: Case) -> None:
    """An event that was processed with another delta raises `Conflict`, and nothing changes."""
    events = mixed_events(case, LONG)
    path = new_store(case, events)
    nothing, something, most = (_place_of(events, delta) for delta in (0, 1, 1000))
    changed = [(seq, delta + (1 if delta < 1000 else -1)) for seq, delta in events[:-5:-1] + events[:2]]
    changed += [(nothing, 7), (something, 0), (something, -1), (most, -1000)]
    changed += [(seq, another_delta(delta)) for seq, delta in case.random.sample(events, 4)]
    run = Applying(case, path, [{"seq": seq, "delta": delta} for seq, delta in changed])

    def called(number: int, report: Message) -> None:
        told = f"the ledger has {events[changed[number][0]][1]}"
        why = f"the publisher has changed an event that was counted already; {told}"
        cause = "the delta in the ledger is not compared with the one that came"
        run.expect_raise(number, report, "Conflict", why, cause, "how delta is compared with the ledger's")
        run.expect_closed(number, report)
        expect_books(case, path, books_after(events), "after the conflict", "the ledger was changed all the same")
        new_chapter(case, f"starts as {books_after(events)}")

    run.go(called)


def _place_of(events: Sequence[tuple[int, int]], wanted: int) -> int:
    """The first event with this delta."""
    return next(seq for seq, delta in events if delta == wanted)


@STEP.rule(0.25)
def gap(case: Case) -> None:
    """An event beyond the next one raises `Gap`, however large its seq, and nothing changes."""
    events = mixed_events(case, 12)
    for have in (12, 0):
        path = new_store(case, events[:have])
        beyond = [have + 1, have + 2, have + case.random.randrange(10, 10**6), 2**63 - 1, 2**63, 2**64, 10**40]
        beyond += [2**bits + have for bits in (31, 32, 53, 63, 64, 128)]  # the next one, where the upper bits get lost
        run = Applying(case, path, [{"seq": seq, "delta": 5} for seq in beyond])

        def called(number: int, report: Message, run: Applying = run, have: int = have) -> None:
            why = f"event {have} is missing"
            cause = "a cursor that jumps makes the missing event look processed; SQLite holds integers below 2**63 only"
            run.expect_raise(number, report, "Gap", why, cause)
            run.expect_closed(number, report)
            expect_books(case, run.path, books_after(events[:have]), "after the gap")
            new_chapter(case, f"starts as {books_after(events[:have])}")

        run.go(called)


@STEP.rule(0.5)
def lock_first(case: Case) -> None:
    """The write lock is taken before the cursor is read: `apply_event` waits for a second writer and sees what it
    wrote.
    """
    case.side_by_side(
        lambda case: _wait_for_writer(case, 0, wal=False),
        lambda case: _wait_for_writer(case, 12, wal=True),
        lambda case: _wait_for_writer(case, 12, wal=False, duplicate=True),
    )


def _wait_for_writer(case: Case, have: int, *, wal: bool, duplicate: bool = False) -> None:
    """One event is applied in peace; the next call, with what the second writer's makes next or with a duplicate,
    meets the lock.
    """
    events = mixed_events(case, have + 3)
    path = new_store(case, events[:have], wal=wal)
    stored = events[: have + 2]  # by the first call and by the second writer
    run = Applying(case, path, [one_event(events[have]), one_event(events[0] if duplicate else events[have + 2])])
    stale = "`last` was read before the lock was there, and was stale when it was used"
    unlocked = "the ledger was looked at before the lock was there: what it said may be stale when it is used"
    with SecondWriter(case, path, stored) as writer:

        def calling(child: Child) -> None:
            if run.calls_made == 1:
                writer.start(child)

        def called(number: int, report: Message) -> None:
            if number == 0:
                run.expect_return(number, report, True)
                return
            if not writer.committing.is_set():
                outcome = run.told(number, report)
                case.fail(
                    "apply_event waits while a second writer holds the lock for a second",
                    f"it did not wait: it {outcome}",
                    NOT_ASKED_FOR if outcome.raised else unlocked,
                    "the first statement of apply_event, and the timeout in sqlite3.connect",
                    where=outcome.place,
                )
            if duplicate:
                return  # it has waited; what it returns is for another rule
            run.expect_return(number, report, True, stale, "BEGIN IMMEDIATE comes first, and only then the SELECT")
            run.expect_closed(number, report)
            expect_books(case, path, books_after(events), "after both writers", stale)

        run.go(called, calling)


NOT_ASKED_FOR = "the lock is not asked for, or the connection's timeout is too short"


@STEP.rule(0.25)
def fault_window(case: Case) -> None:
    """`fault` runs once, after the total has changed and before `last` has, inside the transaction that nobody else
    sees.
    """
    for wal, have in ((False, 4), (True, 12)):
        _look_into_fault(case, have, wal=wal)


def _look_into_fault(case: Case, have: int, *, wal: bool) -> None:
    """Events of every kind are applied with a `fault` that looks around, and then a duplicate."""
    events = mixed_events(case, have + 8)
    path = new_store(case, events[:have], wal=wal)
    sent = [*events[have:], events[-1]]
    run = Applying(case, path, [{**one_event(event), "fault": "ask"} for event in sent])
    locked = False  # once another connection was told so, the next ones need not wait for it

    def at_fault(message: dict[str, Any]) -> None:
        nonlocal locked
        before, after = (books_after(events[: have + run.calls_made + more]) for more in (0, 1))
        inside = case.call(message["inside"])
        case.story.program(f"fault() runs; the same connection finds (last, total) = {inside.returned!r}")
        if not message["in_transaction"]:
            case.fail(
                "fault() runs inside the open transaction",
                "no transaction is open",
                "what was changed before is committed already, or there was no BEGIN",
                "the place of COMMIT",
                where=case.lines_with("fault("),
            )
        if have + run.calls_made == len(events):
            return  # a duplicate: `called` says what is wrong with that
        if inside.returned != (before.last, after.total):
            case.fail(
                f"inside fault(), (last, total) is ({before.last}, {after.total}): total has changed, last has not",
                f"the same connection finds {inside.returned!r}",
                "the order is ledger and total, then fault(), then last",
                "the order of the statements around fault()",
                where=case.lines_with("fault("),
            )
        locked = not _expect_unseen(case, path, before, wait=0.0 if locked else 0.2)

    def called(number: int, report: Message) -> None:
        if have + number < len(events):
            run.expect_return(number, report, True)
            _expect_fault_calls(run, number, report, 1, "fault() is skipped for some events, though it was given")
            expect_books(case, path, books_after(events[: have + number + 1]), "after the commit")
        else:
            run.told(number, report)
            _expect_fault_calls(run, number, report, 0, "fault() stands where total has not changed")
        new_chapter(case, f"starts as {books_after(events[: have + number + 1])}")

    run.go(called, at_fault=at_fault)


def _expect_fault_calls(run: Applying, number: int, report: Message, wanted: int, cause: str) -> None:
    if report["hook_calls"] != wanted:
        call = f"apply_event(con, {run.calls[number]['seq']}, {run.calls[number]['delta']}, fault)"
        run.case.fail(
            f"{call} calls fault() once" if wanted else f"{call} does not call fault(): there is nothing to count",
            f"the number of calls is {report['hook_calls']}",
            cause,
            "the condition before fault(), and where it stands",
            where=run.case.lines_with("fault("),
        )


def _expect_unseen(case: Case, path: Path, before: Books, wait: float) -> bool:
    """Whether another connection could look at the store, in which it must not see the change."""
    try:
        seen = books_of(store.read_live(path, TABLES, wait=wait))
    except Locked:
        case.story.store("another connection is told that the database is locked")
        return False
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
    return True


@STEP.rule(0.5)
def rolls_back(case: Case) -> None:
    """Any error, `KeyboardInterrupt` and `CancelledError` included, undoes everything, and the connection stays
    usable.
    """
    for wal, have in ((False, 4), (True, 12)):
        _fail_and_apply_again(case, have, wal=wal)


def _fail_and_apply_again(case: Case, have: int, *, wal: bool) -> None:
    """For each error one event, whose `fault` raises it at first; then the event is applied again."""
    names = list(FAULTS)
    events = mixed_events(case, have + len(names))
    path = new_store(case, events[:have], wal=wal)
    calls: list[dict[str, Any]] = []
    for name, event in zip(names, events[have:], strict=True):
        calls += [{**one_event(event), "fault": f"raise:{name}"}, one_event(event)]
    run = Applying(case, path, calls)

    def called(number: int, report: Message) -> None:
        round_, again = divmod(number, 2)
        name, stored = names[round_], have + round_
        if again:
            run.expect_return(number, report, True, "the connection was not left in order by the error before")
            expect_books(case, path, books_after(events[: stored + 1]), "after the event was applied again")
            new_chapter(case, f"starts as {books_after(events[: stored + 1])}")
            return
        run.told(number, report)
        outcome = case.call(report["call"])
        if outcome.raised is None:
            where = case.lines_with("fault(") or case.lines_with("except")
            cause = "" if report["hook_calls"] else "fault() was not called"
            case.fail(f"{name} from fault() reaches the caller", f"apply_event {outcome}", cause, where=where)
        run.expect_closed(number, report, "the error is not caught, or only `Exception` is: BaseException has more")
        expect_books(case, path, books_after(events[:stored]), f"after {name}", "a part of the change was kept")

    run.go(called)


@STEP.rule(0.25)
def original_error(case: Case) -> None:
    """The very exception object that was raised reaches the caller, also where SQLite has rolled back by itself."""
    for name in ("ValueError", "Injected", "CancelledError", "OperationalError"):
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
    _end_in_fault(case, "exit:41", Ending(41), 1, wal=False)
    _end_in_fault(case, "kill", KILLED, 12, wal=False)
    _end_in_fault(case, "exit:41", Ending(41), 12, wal=True)
    _end_in_fault(case, "kill", KILLED, 1, wal=True)


def _end_in_fault(case: Case, plan: str, ending: Ending, have: int, *, wal: bool) -> None:
    events = make_events(case, have + 1)
    path = new_store(case, events[:have], wal=wal)
    call = {**one_event(events[have]), "fault": plan}
    with case.start(APPLY, {"path": str(path), "calls": [call]}) as child:
        for message in child.messages():
            if message.get("event") == "finished":
                outcome = case.call(message)
                if outcome.raised is None:
                    outcome = case.call(outcome.returned[0]["call"])
                case.fail("apply_event calls fault()", f"it came back: {outcome}", where=outcome.place)
            child.go_on()
        if child.ending() != ending:
            case.fail_silent(child, "the process ends inside fault(), where it was told to")
    case.story.program(f"ends inside fault(), with no `finally`: {ending}")
    found = books_found(case, path)
    if found != books_after(events[:have]):
        case.fail(
            f"the next process finds {books_after(events[:have])}",
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


@STEP.rule(0.5, explores=True)
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

    def life(self, world: World) -> Job:
        calls = [one_event(event) for event in self.sent]
        return world.case.job(APPLY, {"path": str(world.store), "calls": calls}, folder=world.folder)

    def peer(self, case: Case) -> AbstractContextManager[Any] | None:
        return None

    def tell(self, world: World) -> None:
        tell_calls(world, [f"apply_event(con, {seq}, {delta})" for seq, delta in self.sent])

    def after_crash(self, world: World) -> Hashable:
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
        return found

    def after_life(self, world: World) -> bool:
        case = world.case
        for message in world.reports:
            if message.get("event") in ("finished", "loaded"):
                call = case.call(message)
                failed = [case.call(report["call"]) for report in call.returned or []]
                call = next((inner for inner in failed if inner.raised), call)
                if call.raised is not None:
                    world.story.program(f"apply_event {call}")
                    case.fail("the events can be applied", f"apply_event {call}", where=call.place)
                if sum(report.get("event") == "called" for report in world.reports) != len(self.sent):
                    case.fail_forged("not all calls were reported")
                break
        else:
            case.fail("apply_event comes back", f"the process ended: {world.ending}")
        found = crash_books(world)
        if found != books_after(self.events):
            case.fail(f"in the end the store says {books_after(self.events)}", f"it says {found}", TORN, ONE)
        return True


@STEP.rule(0.25)
def exceptions_apart(case: Case) -> None:
    """`Conflict` and `Gap` can be told apart from each other and from the other exceptions."""
    events = make_events(case, 1)
    calls = [{"seq": 0, "delta": events[0][1] + 1}, {"seq": 5, "delta": 1}]
    run = Applying(case, new_store(case, events), calls)
    run.go(lambda number, report: run.expect_raise(number, report, ("Conflict", "Gap")[number], "as the contract says"))
    expect_apart(case, "Conflict")
    expect_apart(case, "Gap")
