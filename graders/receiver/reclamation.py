"""Step `reclamation`: one session over TCP, and everything given back on every way out of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from graders.engine.rules import Call, Case, Step
from graders.engine.story import Story, show_bytes
from graders.receiver import waiting
from graders.receiver.ack_after_commit import line_of
from graders.receiver.applying import new_store
from graders.receiver.ledger import books_after, connection, expect_books, look, make_events
from graders.receiver.publisher import OTHER_HOST, Connection, Publisher, fill_backlog, free_port
from graders.receiver.session import (
    LONG,
    ONE_WAIT,
    TWO_WAITS,
    Session,
    expect_timeout,
    with_short_timeout,
)
from graders.receiver.waiting import News

STEP = Step("reclamation", public=("run_client",))


@STEP.rule(0.25)
def session(case: Case) -> None:
    """`run_client` stores and acknowledges every event, whether they come one by one or in one piece, and returns
    `last`.
    """
    case.side_by_side(
        partial(_five_events, together=False), partial(_five_events, together=True), _left_out_timeout, _other_host
    )


def _five_events(case: Case, together: bool) -> None:
    events = make_events(case, 5)
    path = new_store(case)
    with Session(case, path) as run:
        peer = run.accept(-1)
        if together:
            peer.send(b"".join(map(line_of, events)))
        for event in events:
            if not together:
                peer.send(line_of(event))
            peer.expect(b"ACK %d\n" % event[0])
        peer.finish()
        run.expect_return(4)
        peer.expect_nothing_more("the receiver sends one RESUME, and one ACK an event")
        expect_books(case, path, books_after(events), "after the session")


DEFAULT = 5.0  # seconds: the contract's `timeout` where the caller gives none
FAR_LONGER = 4 * DEFAULT  # seconds: no slip of a wait or two, but another default


def _left_out_timeout(case: Case) -> None:
    """`timeout` may be left out, and is 5 seconds then."""
    if _waits_long(case, None) and not _waits_long(replace(case, story=Story()), DEFAULT):
        case.fail(
            f"`timeout` is {DEFAULT:g} seconds where it is left out",
            f"without it, a wait for a line is made to last more than {FAR_LONGER:g} s",
            "another default",
            "the default in the head of run_client",
            where=case.own_line_with("def run_client("),
        )


def _waits_long(case: Case, timeout: float | None) -> bool:
    """Whether the wait for a first line is made to last far longer than it may with `timeout`, or without one."""
    with Session(case, new_store(case), timeout=timeout, longest_wait=FAR_LONGER) as run:
        peer = run.accept(-1)
        waiting.until_asleep(run.child)
        peer.finish()
        run.expect_return(-1)
        return bool(run.facts["waited_long"])


def _other_host(case: Case) -> None:
    """`host` is where the publisher is."""
    with Session(case, new_store(case), listener={"host": OTHER_HOST}) as run:
        case.story.peer(f"listens at {run.publisher.host}, which is the `host` that run_client is given")
        peer = run.accept(-1)
        peer.finish()
        run.expect_return(-1)


@STEP.rule(0.25)
def resume(case: Case) -> None:
    """The first line is `RESUME` with the committed cursor; a duplicate is acknowledged again and not counted again."""
    counts = (1, case.random.randint(12, 30))
    case.side_by_side(*(partial(_resumes, count=count) for count in counts))


def _resumes(case: Case, count: int) -> None:
    events = make_events(case, count + 1)
    path = new_store(case, events[:count])
    with Session(case, path, calls=2) as run:
        peer = run.accept(count - 1)
        _exchange(peer, events[-2], events[-1])
        peer.finish()
        case.story.program("run_client is called again, in the same process")
        peer = run.accept(count)
        _exchange(peer, events[-1], events[0])
        peer.finish()
        run.expect_return(count)
        expect_books(case, path, books_after(events), "after the sessions")


def _exchange(peer: Connection, *events: tuple[int, int]) -> None:
    for event in events:
        peer.send(line_of(event))
        peer.expect(b"ACK %d\n" % event[0])


@STEP.rule(0.15)
def split_bytes(case: Case) -> None:
    """TCP has no messages: lines that come byte by byte, or cut anywhere, are put together again."""
    events = make_events(case, 3)
    path = new_store(case)
    with Session(case, path) as run:
        peer = run.accept(-1)
        peer.drip(line_of(events[0]))
        peer.expect(b"ACK 0\n")
        both = line_of(events[1]) + line_of(events[2])
        peer.send(both[:-4])
        peer.expect(b"ACK 1\n")
        peer.send(both[-4:])
        peer.expect(b"ACK 2\n")
        peer.finish()
        run.expect_return(2)
        expect_books(case, path, books_after(events), "after the session")


@STEP.rule(0.2)
def bad_line(case: Case) -> None:
    """A line outside the grammar ends the session with `ProtocolError`; what follows it is neither stored nor
    acknowledged.
    """
    long = 10 ** (65 - len(b"EVENT  7\n") - 1)
    wrong = {
        "a word that is no message": b"BYE\n",
        "a line that could be a sign of life": b"PING\n",
        "CRLF": b"EVENT 1 5\r\n",
        "an empty line": b"\n",
        "65 bytes": b"EVENT %d 7\n" % long,
        "66 bytes": b"EVENT %d 7\n" % (long * 10),
        "a delta out of range": b"EVENT 1 1001\n",
    }
    case.side_by_side(*(partial(_ends_at, told=told, line=line) for told, line in wrong.items()))


def _ends_at(case: Case, told: str, line: bytes) -> None:
    events = make_events(case, 2)
    path = new_store(case)
    with Session(case, path) as run:
        peer = run.accept(-1)
        peer.send(line_of(events[0]) + line + line_of(events[1]))
        peer.expect(b"ACK 0\n")
        run.expect_raise("ProtocolError", told, CARRIES_ON, "what the loop does with an error of parse_line")
        peer.expect_nothing_more(f"nothing is acknowledged after a bad line ({told})")
        expect_books(case, path, books_after(events[:1]), "after the bad line", CARRIES_ON)


CARRIES_ON = "the program goes on after a line that it does not understand, and may miss a command that way"


@STEP.rule(0.15)
def fragment(case: Case) -> None:
    """Bytes without an LF at the end of the stream are no line: `ProtocolError`, and nothing of them is stored."""
    first, second = map(line_of, make_events(case, 2))
    case.side_by_side(
        partial(_ends_in, before=first, rest=second[:-1]),
        partial(_ends_in, before=b"", rest=b"EVEN"),
        partial(_ends_in, before=b"", rest=first[:-1]),
        partial(_ends_in, before=first, rest=b" "),
    )


def _ends_in(case: Case, before: bytes, rest: bytes) -> None:
    events = make_events(case, 2)[: bool(before)]
    path = new_store(case)
    with Session(case, path) as run:
        peer = run.accept(-1)
        if before:
            peer.send(before)
            peer.expect(b"ACK 0\n")
        peer.send(rest)
        peer.finish()
        cause = "the end of the stream is taken for the end of a line"
        run.expect_raise("ProtocolError", "the stream ends inside a line", cause, "what is done with the last bytes")
        peer.expect_nothing_more("no ACK for a fragment")
        expect_books(case, path, books_after(events), "after the fragment", cause)


@STEP.rule(0.15)
def long_line(case: Case) -> None:
    """More than 64 bytes without an LF end the session with `ProtocolError` at once, not when more comes or never."""
    case.side_by_side(*(partial(_sends_without_end, size=size) for size in (70, 5000)))


def _sends_without_end(case: Case, size: int) -> None:
    path = new_store(case)
    with Session(case, path) as run:
        peer = run.accept(-1)
        peer.send(b"E" * size, f"sends {size} bytes without an LF, and then nothing")
        run.expect_raise(
            "ProtocolError",
            f"{size} bytes without an LF",
            "the reader takes more than a line may have: `limit=64` is missing in open_connection",
            "the arguments of asyncio.open_connection, and what LimitOverrunError and ValueError become",
        )
        expect_books(case, path, books_after([]), "after the long line")


@STEP.rule(0.2)
def refuses_gap_conflict(case: Case) -> None:
    """`Gap` and `Conflict` reach the caller of `run_client`; nothing after them is stored or acknowledged."""
    (_, delta), *_ = make_events(case, 2)
    case.side_by_side(
        partial(_refuses, error="Gap", line=b"EVENT 2 7\n"),
        partial(_refuses, error="Conflict", line=b"EVENT 0 %d\n" % -delta),
    )


def _refuses(case: Case, error: str, line: bytes) -> None:
    events = make_events(case, 2)
    path = new_store(case)
    with Session(case, path) as run:
        peer = run.accept(-1)
        peer.send(line_of(events[0]) + line + line_of(events[1]))
        peer.expect(b"ACK 0\n")
        run.expect_raise(error, f"the publisher sent {line!r}", "the error is caught inside the session", CAUGHT)
        peer.expect_nothing_more(f"nothing is acknowledged after {error}")
        expect_books(case, path, books_after(events[:1]), f"after {error}")


CAUGHT = "the `except` clauses of run_client and its helpers"


@STEP.rule(0.2)
def stalled_peer(case: Case) -> None:
    """A publisher that accepts no connection, or sends nothing more, is a `TimeoutError` after `timeout` seconds."""
    parts = (_stalled_connect, _stalled_read, _stalled_in_line)
    case.side_by_side(*(partial(with_short_timeout, part=part) for part in parts))


def _stalled(timeout: float, waits: float = ONE_WAIT) -> dict[str, Any]:
    """A session's arguments where the publisher stalls, and `waits` times `timeout` is more than may be waited for."""
    return {"timeout": timeout, "longest_wait": timeout * waits}


def _stalled_connect(case: Case, timeout: float) -> None:
    with Publisher(case, backlog=0) as full:
        waiting = fill_backlog(case, full.port)
        try:
            case.story.peer("its queue is full: no connection is accepted")
            with Session(case, new_store(case), port=full.port, **_stalled(timeout)) as run:
                expect_timeout(run, "connecting takes longer than `timeout`", "asyncio.open_connection")
        finally:
            for sock in waiting:
                sock.close()


def _stalled_read(case: Case, timeout: float) -> None:
    events = make_events(case, 1)
    with Session(case, new_store(case), **_stalled(timeout)) as run:
        peer = run.accept(-1)
        peer.send(line_of(events[0]))
        peer.answers(b"ACK 0\n")
        case.story.peer("sends nothing more, and keeps the connection open")
        expect_timeout(run, "no line comes for longer than `timeout`", "the read")


def _stalled_in_line(case: Case, timeout: float) -> None:
    with Session(case, new_store(case), **_stalled(timeout)) as run:
        peer = run.accept(-1)
        peer.send(b"EVENT 0")
        case.story.peer("sends nothing more, and keeps the connection open")
        expect_timeout(run, "the rest of a line does not come within `timeout`", "the read")


@STEP.rule(0.2)
def stalled_writes(case: Case) -> None:
    """A publisher that reads nothing stalls `drain` and `wait_closed`; both are bounded, and the descriptor is
    freed.
    """
    case.side_by_side(*(partial(with_short_timeout, part=part) for part in (_stalled_drain, _stalled_close)))


def _stalled_drain(case: Case, timeout: float) -> None:
    events = make_events(case, RESENT_SEQ + 1)
    narrow = UNREAD | {"slow_network": 2048} | _stalled(timeout, TWO_WAITS)  # what stalls a write stalls the close, too
    with Session(case, new_store(case, events), **narrow) as run:
        peer = run.accept(RESENT_SEQ)
        peer.pour(line_of(events[-1]) * 5000, f"resends event {RESENT_SEQ} without end, and reads no ACK")
        peer.finish()
        why = "a publisher that does not read stalls `drain`, and then `wait_closed`"
        expect_timeout(run, why, "the awaits of writer.drain() and writer.wait_closed()")
        run.expect_given_back("a stalled write", at_once=False)


def _stalled_close(case: Case, timeout: float) -> None:
    events = make_events(case, RESENT_SEQ + 1)
    with Session(case, new_store(case, events), **UNREAD, **_stalled(timeout)) as run:
        peer = run.accept(RESENT_SEQ)
        fill_without_stalling(peer, events[-1])
        call = run.outcome()
        if (call.raised is None and call.returned == RESENT_SEQ) or call.raised_a("TimeoutError"):
            run.expect_given_back("a close that stalls", at_once=False)
            return
        expected = f"run_client returns {RESENT_SEQ}, or raises TimeoutError, when only `wait_closed` stalls"
        case.fail(expected, f"it {call}", look="await writer.wait_closed()", where=call.place)


RESENT_SEQ = 100  # the longer the ACK, the fewer of them it takes
RESENT = 1500  # so many ACKs do not fit into a narrow network, but into the transport's buffer
UNREAD: dict[str, Any] = {"listener": {"receive_buffer": 1}, "slow_network": 0}


def fill_without_stalling(peer: Connection, event: tuple[int, int], after: bytes = b"") -> None:
    """So many duplicates that closing stalls, and no write before it."""
    peer.pour(line_of(event) * RESENT + after, f"resends event {event[0]} {RESENT} times, and reads no ACK")
    if after:
        peer.case.story.peer(f"then sends {show_bytes(after)}")
    peer.finish()


@STEP.rule(0.2)
def each_wait_alone(case: Case) -> None:
    """`timeout` is for each wait on the network alone: a long session with short waits is none of its business."""
    call = _long_session(case, STEP_FORWARD)
    if call == DONE:
        return
    quick = replace(case, story=Story())
    if _long_session(quick, 0) == DONE:  # else time has nothing to do with it
        case.fail(
            f"a session of {STEP_FORWARD * EVENTS} s goes on, since no single wait takes {LONG:g} s",
            f"run_client {call}",
            "one limit is put around the whole session, or around many waits",
            "what stands inside asyncio.timeout or wait_for: one await on the network, no more",
            where=call.place,
        )


def _long_session(case: Case, step: int) -> Call:
    """What run_client comes back with from a session in which each event puts its clock forward by `step` seconds."""
    with Session(case, new_store(case), hook=f"leap:{step}") as run:
        case.story.program(f"timeout is {LONG:g} s; each before_ack puts the program's clock forward by {step} s")
        peer = run.accept(-1)
        for event in make_events(case, EVENTS):
            peer.send(line_of(event))
            if not peer.answers(b"ACK %d\n" % event[0]):
                break
        peer.finish()
        return run.outcome()


EVENTS = 12
DONE = Call(returned=EVENTS - 1)
STEP_FORWARD = 20  # seconds, less than LONG


@STEP.rule(0.2)
def before_ack(case: Case) -> None:
    """`before_ack(seq)` is called once for each new event, after its COMMIT and before its ACK is written."""
    case.side_by_side(_hook_that_looks, _hook_that_raises)


def _hook_that_looks(case: Case) -> None:
    events = make_events(case, 3)
    path = new_store(case)
    with Session(case, path, hook="ask") as run:
        peer = run.accept(-1)
        peer.send(b"".join(map(line_of, events)))
        seen = 0

        def at_hook(message: dict[str, Any]) -> None:
            nonlocal seen
            case.story.program(f"before_ack({message['seq']!r}) runs")
            found = look(case, path, "inside before_ack")
            if found != books_after(events[: seen + 1]):
                expected = f"before_ack runs after the COMMIT of event {seen}: {books_after(events[: seen + 1])}"
                case.fail(expected, f"another connection finds {found}", where=case.own_line_with("before_ack("))
            early = peer.received_now().count(b"\n")
            if early > seen:
                case.fail(
                    f"ACK {seen} is written after before_ack({seen})",
                    "the publisher has it already",
                    look="the order of before_ack and writer.write",
                    where=case.own_line_with("before_ack("),
                )
            seen += 1
            if seen == len(events):
                peer.finish()

        call = run.outcome(at_hook)
        if call.raised is not None or call.returned != 2:
            case.fail("the session goes on after each before_ack", f"run_client {call}", where=call.place)
        if run.facts["hooked"] != [0, 1, 2]:
            told = f"before_ack is called with {run.facts['hooked']}"
            case.fail("before_ack is called with 0, 1, 2", told, where=case.own_line_with("before_ack"))
        for event in events:
            peer.expect(b"ACK %d\n" % event[0])


def _hook_that_raises(case: Case) -> None:
    events = make_events(case, 1)
    path = new_store(case)
    with Session(case, path, hook="raise:Anything") as run:
        peer = run.accept(-1)
        peer.send(line_of(events[0]))
        peer.finish()
        _expect_from_hook(run, "Anything")
        peer.expect_nothing_more("no ACK is written when before_ack raises")
        expect_books(case, path, books_after(events[:1]), "after before_ack has raised")


def _expect_from_hook(run: Session, error: str) -> None:
    """What before_ack has raised reaches the caller."""
    call = run.outcome()
    if call.raised is None or call.raised.type != error:
        cause = "an error of before_ack is caught inside the session"
        run.case.fail("what before_ack raises reaches the caller", f"run_client {call}", cause, CAUGHT, call.place)


@STEP.rule(0.25)
def releases(case: Case) -> None:
    """On every way out the writer is closed and waited for, and SQLite's connection is closed; the first error is
    told.
    """
    case.side_by_side(
        partial(_released_after, told="a clean end", error="", line=b""),
        partial(_released_after, told="a bad line", error="ProtocolError", line=b"HELLO\n"),
        partial(_released_after, told="a gap", error="Gap", line=b"EVENT 9 1\n"),
        partial(_released_after, told="a fragment", error="ProtocolError", line=b"EVENT 0"),
        partial(_released_after, told="a conflict", error="Conflict", line=b"EVENT 0 0\n"),
        partial(with_short_timeout, part=_released_after_timeout),
        _released_after_refusal,
        _released_after_hook,
        _released_after_sqlite,
        _released_without_store,
        _flushed_for_late_reader,
    )


def _released_after(case: Case, told: str, error: str, line: bytes) -> None:
    with Session(case, new_store(case, make_events(case, 1))) as run:
        peer = run.accept(0)
        if line:
            peer.send(line)
        peer.finish()
        if error:
            run.expect_raise(error, told, "the error is caught inside the session", CAUGHT)
        else:
            run.expect_return(0)
        run.expect_given_back(told)


def _released_after_timeout(case: Case, timeout: float) -> None:
    with Session(case, new_store(case), **_stalled(timeout)) as run:
        run.accept(-1)
        case.story.peer("sends nothing")
        expect_timeout(run, "no line comes", "the read")
        run.expect_given_back("a timeout")


def _released_after_refusal(case: Case) -> None:
    for port in free_port(case):
        case.story.peer("is not there: nobody listens on the port")
        with Session(case, new_store(case), port=port) as run:
            run.expect_raise("OSError", "the connection is refused")
            run.expect_given_back("a refused connection", at_once=False)


def _released_after_hook(case: Case) -> None:
    with Session(case, new_store(case), hook="raise:Injected") as run:
        peer = run.accept(-1)
        peer.send(b"EVENT 0 5\n")
        _expect_from_hook(run, "Injected")
        run.expect_given_back("an error in before_ack")


def _released_after_sqlite(case: Case) -> None:
    events = make_events(case, 2)
    path = new_store(case, events[:1])
    with Session(case, path) as run:
        peer = run.accept(0)
        try:
            with connection(path) as con:
                con.execute("DROP TABLE ledger")
        except sqlite3.OperationalError:  # a lock, which is not this rule's business
            return
        case.story.store("loses its ledger: every statement on it fails from now on")
        peer.send(line_of(events[1]))
        peer.finish()
        cause = "an error of SQLite's is taken for an end of the session, or is tried again"
        run.expect_raise("sqlite3.Error", "there is no table `ledger` any more", cause, "where sqlite3.Error is caught")
        peer.expect_nothing_more("no ACK for what could not be stored")
        run.expect_given_back("an error of SQLite's")


def _released_without_store(case: Case) -> None:
    path = case.new_folder() / "store.db"
    path.write_bytes(b"this is no database\n" * 100)
    case.story.store("is a file that is no database")
    with Session(case, path) as run:
        call = run.outcome()
        if call.raised is None:
            case.fail("an error of open_store reaches the caller", f"run_client {call}")
        run.expect_given_back("an error of open_store", at_once=False)


def _flushed_for_late_reader(case: Case) -> None:
    """Closing in order sends what is still in the transport's buffer; aborting throws it away."""
    events = make_events(case, RESENT_SEQ + 1)
    with Session(case, new_store(case, events), **UNREAD) as run:
        peer = run.accept(RESENT_SEQ)
        fill_without_stalling(peer, events[-1])
        waiting.until_asleep(run.child)
        case.story.peer("now reads what was sent to it")
        peer.widen()
        count = peer.drain().count(b"ACK %d\n" % RESENT_SEQ)
        if not peer.ended:
            return  # too slow to tell
        if run.outcome().raised is None and count < RESENT:
            case.fail(
                f"all {RESENT} ACKs arrive, since the writer is closed in order and waited for",
                "only some of them do, and then the connection ends",
                "transport.abort() throws away what has not been sent yet",
                "writer.close() and await writer.wait_closed() first; abort() only once that has taken too long",
                where=case.own_line_with("abort("),
            )


@STEP.rule(0.2)
def cancellation(case: Case) -> None:
    """Cancelled while it waits for a line, `run_client` gives everything back and passes `CancelledError` on."""
    events = make_events(case, 1)
    path = new_store(case)
    with Session(case, path, cancellable=True) as run:
        peer = run.accept(-1)
        peer.send(line_of(events[0]))
        peer.expect(b"ACK 0\n")
        case.story.program("waits for the next line; its task is cancelled")
        run.child.go_on()
        call = run.outcome()
        if call.raised is None or "asyncio.exceptions.CancelledError" not in call.raised.bases:
            case.fail(
                "CancelledError reaches the caller",
                f"run_client {call}",
                "the cancellation is caught and swallowed, or replaced",
                "`except BaseException` and `except asyncio.CancelledError` without `raise`",
                where=call.place,
            )
        run.expect_given_back("a cancellation")
        peer.expect_nothing_more("nothing is sent after the cancellation")
        expect_books(case, path, books_after(events), "after the cancellation")


@STEP.rule(0.2)
def reset(case: Case) -> None:
    """A reset in mid-session is an error; one that comes while closing replaces neither a result nor an earlier
    error.
    """
    case.side_by_side(
        _reset_in_mid_session,
        partial(_reset_while_closing, error=""),
        partial(_reset_while_closing, error="ProtocolError"),
    )


def _reset_in_mid_session(case: Case) -> None:
    events = make_events(case, 1)
    with Session(case, new_store(case)) as run:
        peer = run.accept(-1)
        peer.send(line_of(events[0]))
        peer.expect(b"ACK 0\n")
        peer.reset()
        call = run.outcome()
        if call.raised is None:
            case.fail(
                "a reset in mid-session is an error",
                f"run_client {call}",
                "a broken connection is taken for the end of the stream",
                "except ConnectionError, except OSError",
                where=case.own_line_with("except"),
            )
        run.expect_given_back("a reset")


def _reset_while_closing(case: Case, error: str) -> None:
    events = make_events(case, RESENT_SEQ + 1)
    with Session(case, new_store(case, events), **UNREAD) as run:
        peer = run.accept(RESENT_SEQ)
        fill_without_stalling(peer, events[-1], b"HELLO\n" if error else b"")
        for message in run.child.messages():
            if message.get("event") == "closing":
                case.story.program("closes the connection, with ACKs still unsent")
                peer.reset()
                call = run.outcome()
                break
            if message.get("event") == "finished":
                call = run.came_back(message)
                break
        else:
            case.fail_silent(run.child)
        right = call.raised_a(error) if error else call.raised is None and call.returned == RESENT_SEQ
        if not right:
            kept = error or f"the result, {RESENT_SEQ},"
            case.fail(
                f"a reset while closing leaves {kept} as what run_client comes back with",
                f"run_client {call}",
                "an error of wait_closed takes the place of what came before" if call.raised else "",
                "what is done with an error of writer.wait_closed()" if call.raised else CAUGHT if error else "",
                where=call.place,
            )


@STEP.rule(0.2)
def no_retry(case: Case) -> None:
    """One call is one connection: reconnecting is a decision of the caller's, never hidden inside."""
    case.side_by_side(
        partial(_no_retry_after, end=Connection.finish),
        partial(_no_retry_after, end=Connection.reset),
        partial(with_short_timeout, part=_no_retry_after_timeout),
        _no_retry_after_refusal,
    )


def _no_retry_after(case: Case, end: Callable[[Connection], None]) -> None:
    with Session(case, new_store(case)) as run:
        end(run.accept(-1))
        run.outcome()
        if run.facts["attempts"] > 1 or run.publisher.has_another():
            run.fail_retried()


def _no_retry_after_timeout(case: Case, timeout: float) -> None:
    with Session(case, new_store(case), timeout=timeout) as run:
        run.accept(-1)
        case.story.peer("sends nothing")
        if waiting.wait(run.child, run.publisher.listener) is News.READY:
            case.story.peer("sees another connection come in")
            run.fail_retried()


def _no_retry_after_refusal(case: Case) -> None:
    for port in free_port(case):
        case.story.peer("is not there: nobody listens on the port")
        with Session(case, new_store(case), port=port) as run:
            call = run.outcome()
            if call.raised is None:
                case.fail("a refused connection is an error", f"run_client {call}")
            if run.facts["attempts"] > 1:
                run.fail_retried()
