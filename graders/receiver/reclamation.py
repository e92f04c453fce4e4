"""Step `reclamation`: one session over TCP, and everything given back on every way out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graders.engine.rules import Case, Step
from graders.receiver.ack_after_commit import line_of
from graders.receiver.applying import new_store
from graders.receiver.ledger import books_after, expect_books, look, make_events
from graders.receiver.publisher import Connection, Publisher, fill_backlog, free_port
from graders.receiver.session import IN_TIME, SHORT, Session, expect_timeout

STEP = Step("reclamation", public=("run_client",))


@STEP.rule(0.25)
def session(case: Case) -> None:
    """`run_client` stores and acknowledges every event, whether they come one by one or in one piece, and returns
    `last`.
    """
    events = make_events(case, 5)
    for together in (False, True):
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
    _default_timeout(case)


def _default_timeout(case: Case) -> None:
    """`timeout` may be left out."""
    with Session(case, new_store(case), timeout=None) as run:
        peer = run.accept(-1)
        peer.finish()
        run.expect_return(-1)


@STEP.rule(0.25)
def resume(case: Case) -> None:
    """The first line is `RESUME` with the committed cursor; a duplicate is acknowledged again and not counted again."""
    for count in (1, case.random.randint(2, 30)):
        events = make_events(case, count + 1)
        path = new_store(case, events[:count])
        with Session(case, path) as run:
            peer = run.accept(count - 1)
            for event in (events[count - 1], events[count]):
                peer.send(line_of(event))
                peer.expect(b"ACK %d\n" % event[0])
            peer.finish()
            run.expect_return(count)
            expect_books(case, path, books_after(events), "after the session")
    with Session(case, new_store(case, events)) as run:
        peer = run.accept(count)
        peer.finish()
        run.expect_return(count)


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
        "a word that is no message": b"HELLO\n",
        "CRLF": b"EVENT 1 5\r\n",
        "an empty line": b"\n",
        "65 bytes": b"EVENT %d 7\n" % long,
        "66 bytes": b"EVENT %d 7\n" % (long * 10),
        "a delta out of range": b"EVENT 1 1001\n",
    }
    for told, line in wrong.items():
        events = make_events(case, 2)
        path = new_store(case)
        with Session(case, path, timeout=5.0) as run:
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
    events = make_events(case, 2)
    for have, rest in ((1, line_of(events[1])[:-1]), (0, b"EVEN"), (0, line_of(events[0])[:-1]), (1, b"E")):
        path = new_store(case)
        with Session(case, path) as run:
            peer = run.accept(-1)
            for event in events[:have]:
                peer.send(line_of(event))
                peer.expect(b"ACK %d\n" % event[0])
            peer.send(rest)
            peer.finish()
            cause = "the end of the stream is taken for the end of a line"
            run.expect_raise(
                "ProtocolError", "the stream ends inside a line", cause, "what is done with the last bytes"
            )
            peer.expect_nothing_more("no ACK for a fragment")
            expect_books(case, path, books_after(events[:have]), "after the fragment", cause)


@STEP.rule(0.15)
def long_line(case: Case) -> None:
    """More than 64 bytes without an LF end the session with `ProtocolError` at once, not when more comes or never."""
    for size in (70, 5000):
        path = new_store(case)
        with Session(case, path, timeout=2.0) as run:
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
    events = make_events(case, 3)
    for error, line in (("Gap", b"EVENT 2 7\n"), ("Conflict", b"EVENT 0 %d\n" % -events[0][1])):
        path = new_store(case)
        with Session(case, path) as run:
            peer = run.accept(-1)
            peer.send(line_of(events[0]) + line + line_of(events[1]))
            peer.expect(b"ACK 0\n")
            run.expect_raise(error, f"the publisher sent {line!r}", "the error is caught inside the session")
            peer.expect_nothing_more(f"nothing is acknowledged after {error}")
            expect_books(case, path, books_after(events[:1]), f"after {error}")


@STEP.rule(0.2)
def stalled_peer(case: Case) -> None:
    """A publisher that accepts no connection, or sends nothing more, is a `TimeoutError` after `timeout` seconds."""
    case.side_by_side(_stalled_connect, _stalled_read, _stalled_in_line)


def _stalled_connect(case: Case) -> None:
    with Publisher(case, backlog=0) as full:
        waiting = fill_backlog(full.port)
        try:
            case.story.publisher("its queue is full: no connection is accepted")
            with Session(case, new_store(case), port=full.port, timeout=SHORT, patience=IN_TIME) as run:
                expect_timeout(run, "connecting takes longer than `timeout`", "asyncio.open_connection")
        finally:
            for sock in waiting:
                sock.close()


def _stalled_read(case: Case) -> None:
    events = make_events(case, 1)
    with Session(case, new_store(case), timeout=SHORT, patience=IN_TIME) as run:
        peer = run.accept(-1)
        peer.send(line_of(events[0]))
        peer.expect(b"ACK 0\n")
        case.story.publisher("sends nothing more, and keeps the connection open")
        expect_timeout(run, "no line comes for longer than `timeout`", "the read")


def _stalled_in_line(case: Case) -> None:
    with Session(case, new_store(case), timeout=SHORT, patience=IN_TIME) as run:
        peer = run.accept(-1)
        peer.send(b"EVENT 0")
        case.story.publisher("sends nothing more, and keeps the connection open")
        expect_timeout(run, "the rest of a line does not come within `timeout`", "the read")


@STEP.rule(0.2)
def stalled_writes(case: Case) -> None:
    """A publisher that reads nothing stalls `drain` and `wait_closed`; both are bounded, and the descriptor is
    freed.
    """
    case.side_by_side(_stalled_drain, _stalled_close)


NARROW: Mapping[str, Any] = {"listener": {"receive_buffer": 1}, "timeout": SHORT, "patience": 3 * IN_TIME}


def _stalled_drain(case: Case) -> None:
    events = make_events(case, 1)
    with Session(case, new_store(case, events), slow_network=2048, **NARROW) as run:
        peer = run.accept(0)
        peer.pour(line_of(events[0]) * 20_000, "resends event 0 without end, and reads no ACK")
        peer.finish()
        expect_timeout(run, "`drain` waits longer than `timeout` for a publisher that does not read", "writer.drain()")
        run.expect_given_back("a stalled write", at_once=False)


def _stalled_close(case: Case) -> None:
    events = make_events(case, 1)
    with Session(case, new_store(case, events), slow_network=0, **NARROW) as run:
        peer = run.accept(0)
        fill_without_stalling(run, peer, events[0])
        call = run.outcome()
        if (call.raised is None and call.returned == 0) or call.raised_a("TimeoutError"):
            run.expect_given_back("a close that stalls", at_once=False)
            return
        expected = "run_client returns 0, or raises TimeoutError, when only `wait_closed` stalls"
        case.fail(expected, f"it {call}", look="await writer.wait_closed()", where=call.place)


def fill_without_stalling(run: Session, peer: Connection, event: tuple[int, int]) -> None:
    """So many duplicates that their ACKs do not fit into the network, but into the transport's buffer: closing
    stalls.
    """
    peer.pour(line_of(event) * 3000, "resends event 0 three thousand times, and reads no ACK")
    peer.finish()


@STEP.rule(0.2)
def each_wait_alone(case: Case) -> None:
    """`timeout` is for each wait on the network alone: a long session with short waits is none of its business."""
    gap, timeout = 0.3, 0.8
    if not _long_session(case, gap, timeout, last_try=False):
        _long_session(case, 1.2, 5.0, last_try=True)  # a busy machine may have held one of us up


def _long_session(case: Case, gap: float, timeout: float, *, last_try: bool) -> bool:
    import time

    events = make_events(case, int(timeout / gap) + 2)
    path = new_store(case)
    with Session(case, path, timeout=timeout) as run:
        peer = run.accept(-1)
        case.story.publisher(f"sends an event every {gap} s; timeout is {timeout} s")
        started = time.monotonic()
        for event in events:
            wait = started + gap * (event[0] + 1) - time.monotonic()
            if run.child.finishes_within(wait):
                break
            peer.send(line_of(event))
            peer.received_now()
        peer.finish()
        call = run.outcome()
        if call.raised is None and call.returned == events[-1][0]:
            return True
        if not last_try:
            del case.story.events[:]
            return False
        case.fail(
            f"a session of {gap * len(events):.1f} s goes on, since no single wait takes {timeout} s",
            f"run_client {call}",
            "one timeout is put around the whole session",
            "what stands inside asyncio.timeout or wait_for: one await on the network, no more",
            where=call.place,
        )


@STEP.rule(0.2)
def before_ack(case: Case) -> None:
    """`before_ack(seq)` is called once for each new event, after its COMMIT and before its ACK is written."""
    events = make_events(case, 3)
    path = new_store(case)
    with Session(case, path, hook="ask") as run:
        peer = run.accept(-1)
        peer.send(b"".join(map(line_of, events)))
        seen = 0

        def at_hook(message: dict[str, Any]) -> None:
            nonlocal seen
            case.story.receiver(f"before_ack({message['seq']!r}) runs")
            found = look(case, path, "inside before_ack")
            if found != books_after(events[: seen + 1]):
                expected = f"before_ack runs after the COMMIT of event {seen}: {books_after(events[: seen + 1])}"
                case.fail(expected, f"another connection finds {found}", where=case.lines_with("before_ack("))
            early = peer.received_now().count(b"\n")
            if early > seen:
                case.fail(
                    f"ACK {seen} is written after before_ack({seen})",
                    "the publisher has it already",
                    look="the order of before_ack and writer.write",
                    where=case.lines_with("before_ack("),
                )
            seen += 1
            if seen == len(events):
                peer.finish()

        call = run.outcome(at_hook)
        if call.raised is not None or call.returned != 2:
            case.fail("the session goes on after each before_ack", f"run_client {call}", where=call.place)
        if run.facts["hooked"] != [0, 1, 2]:
            told = f"before_ack is called with {run.facts['hooked']}"
            case.fail("before_ack is called with 0, 1, 2", told, where=case.lines_with("before_ack"))
        for event in events:
            peer.expect(b"ACK %d\n" % event[0])
    _hook_that_raises(case, events)


def _hook_that_raises(case: Case, events: Sequence[tuple[int, int]]) -> None:
    path = new_store(case)
    with Session(case, path, hook="raise:OSError") as run:
        peer = run.accept(-1)
        peer.send(line_of(events[0]))
        run.expect_raise("OSError", "that is what before_ack raised")
        peer.expect_nothing_more("no ACK is written when before_ack raises")
        expect_books(case, path, books_after(events[:1]), "after before_ack has raised")


@STEP.rule(0.25)
def releases(case: Case) -> None:
    """On every way out the writer is closed and waited for, and SQLite's connection is closed; the first error is
    told.
    """
    for told, error, lines in (
        ("a clean end", "", b""),
        ("a bad line", "ProtocolError", b"HELLO\n"),
        ("a gap", "Gap", b"EVENT 9 1\n"),
        ("a fragment", "ProtocolError", b"EVENT 0"),
    ):
        with Session(case, new_store(case)) as run:
            peer = run.accept(-1)
            if lines:
                peer.send(lines)
            peer.finish()
            if error:
                run.expect_raise(error, told)
            else:
                run.expect_return(-1)
            run.expect_given_back(told)
    with Session(case, new_store(case), timeout=SHORT, patience=IN_TIME) as run:
        run.accept(-1)
        case.story.publisher("sends nothing")
        expect_timeout(run, "no line comes", "the read")
        run.expect_given_back("a timeout")
    for port in free_port():
        case.story.publisher("is not there: nobody listens on the port")
        with Session(case, new_store(case), port=port) as run:
            run.expect_raise("OSError", "the connection is refused")
            run.expect_given_back("a refused connection", at_once=False)
    with Session(case, new_store(case), hook="raise:Injected") as run:
        peer = run.accept(-1)
        peer.send(b"EVENT 0 5\n")
        call = run.outcome()
        if call.raised is None or call.raised.type != "Injected":
            case.fail("what before_ack raises reaches the caller", f"run_client {call}", where=call.place)
        run.expect_given_back("an error in before_ack")


@STEP.rule(0.2)
def cancellation(case: Case) -> None:
    """Cancelled while it waits for a line, `run_client` gives everything back and passes `CancelledError` on."""
    events = make_events(case, 1)
    path = new_store(case)
    with Session(case, path, cancellable=True) as run:
        peer = run.accept(-1)
        peer.send(line_of(events[0]))
        peer.expect(b"ACK 0\n")
        case.story.receiver("waits for the next line; its task is cancelled")
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
                where=case.lines_with("except"),
            )
        run.expect_given_back("a reset")
    _reset_while_closing(case, events[0], "")
    _reset_while_closing(case, events[0], "ProtocolError")


def _reset_while_closing(case: Case, event: tuple[int, int], error: str) -> None:
    options: dict[str, Any] = {"listener": {"receive_buffer": 1}, "timeout": 10.0, "slow_network": 0}
    with Session(case, new_store(case, [event]), **options) as run:
        peer = run.accept(0)
        peer.pour(line_of(event) * 3000 + (b"HELLO\n" if error else b""), "resends event 0, and reads no ACK")
        if error:
            case.story.publisher("then sends a bad line")
        peer.finish()
        for message in run.child.messages():
            if message.get("event") == "closing":
                case.story.receiver("closes the connection, with ACKs still unsent")
                peer.reset()
            if message.get("event") == "finished":
                run.facts = case.call(message).returned
                break
        else:
            case.fail_silent(run.child)
        call = case.call(run.facts["call"])
        case.story.receiver(f"run_client {call}")
        right = call.raised_a(error) if error else call.raised is None and call.returned == 0
        if not right:
            case.fail(
                f"a reset while closing leaves {error or 'the result, 0,'} as what run_client comes back with",
                f"run_client {call}",
                "an error of wait_closed takes the place of what came before",
                "what is done with an error of writer.wait_closed()",
                where=call.place or case.lines_with("wait_closed"),
            )


@STEP.rule(0.2)
def no_retry(case: Case) -> None:
    """One call is one connection: reconnecting is a decision of the caller's, never hidden inside."""
    for told, end in (("a clean end", "finish"), ("a reset", "reset")):
        with Session(case, new_store(case), timeout=5.0) as run:
            peer = run.accept(-1)
            getattr(peer, end)()
            run.outcome()
            if run.facts["attempts"] > 1 or run.publisher.has_another():
                _retried(case, told)
    with Session(case, new_store(case), timeout=SHORT, patience=IN_TIME) as run:
        run.accept(-1)
        case.story.publisher("sends nothing")
        if run.publisher.another_comes(run.child):
            _retried(case, "a timeout")
    for port in free_port():
        case.story.publisher("is not there: nobody listens on the port")
        with Session(case, new_store(case), port=port, timeout=5.0) as run:
            call = run.outcome()
            if call.raised is None:
                case.fail("a refused connection is an error", f"run_client {call}")
            if run.facts["attempts"] > 1:
                _retried(case, "a refused connection")


def _retried(case: Case, told: str) -> None:
    case.fail(
        f"after {told}, run_client comes back",
        "it connects a second time",
        "a loop around the connection hides that something went wrong",
        "loops around asyncio.open_connection",
        where=case.lines_with("while", "for "),
    )
