"""Step `reconnect`: `client.py` as a command, ended for real between COMMIT and ACK, and started again for real."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from graders.engine.explore import explore
from graders.engine.probes import AS_COMMAND, AS_MAIN
from graders.engine.processes import Child, Ending, Job
from graders.engine.rules import Case, Step
from graders.engine.world import World
from graders.receiver import waiting
from graders.receiver.ack_after_commit import line_of
from graders.receiver.applying import crash_books, new_store
from graders.receiver.ledger import books_after, expect_books, make_events
from graders.receiver.probes import MAIN
from graders.receiver.publisher import HOST, OTHER_HOST, Connection, Publisher, StopAndWait, free_port
from graders.receiver.session import ONE_WAIT, OTHER_LIMIT, Proven, with_short_timeout
from graders.receiver.waiting import News

STEP = Step("reconnect", public=("main",))

PATIENCE = 20.0  # seconds for a process that includes a new interpreter
SHOWN = 160  # characters of a last line


class Command:
    """`python client.py HOST PORT DB …` as a process, and its end. Use as a context manager."""

    def __init__(
        self,
        case: Case,
        port: int,
        path: Path,
        *options: str,
        host: str = HOST,
        real: bool = False,
        patience: float = PATIENCE,
        longest_wait: float | None = None,
        may_sleep: bool = False,
    ) -> None:
        self.case = case
        self.may_sleep = may_sleep  # the publisher is silent, and another rule says for how long
        told = f"python {case.program.name} HOST PORT DB {' '.join(options)}".rstrip()
        case.story.program(f"a new process starts: {told}")
        self.child: Child = case.start(
            AS_COMMAND if real else MAIN,
            {} if real else {"longest_wait": longest_wait},
            folder=case.new_folder(),
            argv=[host, str(port), str(path), *options],
            load=False,
            patience=patience,
        )
        self.unwound: Mapping[str, Any] | None = None
        self.attempts = 0
        self.waits_too_long = False

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.__exit__()

    def ending(
        self,
        expected: str = "the process comes to its end",
        cause: str = "it waits for what will not come any more",
        look_at: str = "how the session ends, and what is still waited for then",
    ) -> Ending:
        """Wait for the end. A process that does not end breaks the rule."""
        if self.may_sleep:
            self.child.finishes_within(self.child.job.patience)
        elif waiting.wait(self.child) is News.ASLEEP:
            where = waiting.where_it_sleeps(self.case, self.child)
            told = f"it sleeps for good{f', at {where}' if where else ''}"
            self.case.fail(expected, told, cause, look_at, where=where)
        for message in self.child.messages():
            match message.get("event"):
                case "unwound":
                    self.unwound = message
                case "connecting":
                    self.attempts += 1
                case "waits":
                    self.waits_too_long = True
                case "woken":
                    self.waits_too_long = False
        ending = self.child.ending()
        if self.child.timed_out:
            self.case.fail_silent(self.child, expected)
        self.case.story.program(f"the process ends: {ending}")
        return ending

    def last_line(self) -> str:
        lines = self.child.standard_error().strip().splitlines()
        return lines[-1].strip() if lines else ""

    def expect_success(self) -> None:
        ending = self.ending()
        if ending != Ending(0):
            self.case.fail(
                "exit status 0 after a clean end of the stream",
                f"{ending}"
                + (f"; its last line on standard error is `{self.last_line()[:SHOWN]}`" if self.last_line() else ""),
                look="what main returns, and what is passed to sys.exit",
                where=self.case.own_line_with("sys.exit", "__main__"),
            )


@STEP.rule(0.5)
def command(case: Case) -> None:
    """`python client.py HOST PORT DB` runs one session, creates the store if need be, and ends with exit status 0."""
    case.side_by_side(_two_sessions, _nothing_to_do, partial(with_short_timeout, part=_timeout_is_used))


def _two_sessions(case: Case) -> None:
    events = make_events(case, 3)
    path = case.new_folder() / "new.db"
    for options, have, real in (((), 0, True), (("--timeout", "9.5"), 2, False)):
        with Publisher(case) as publisher, Command(case, publisher.port, path, *options, real=real) as run:
            peer = publisher.accept(run.child)
            peer.expect(b"RESUME %d\n" % (have - 1))
            for event in events[have : have + 2]:
                peer.send(line_of(event))
                peer.expect(b"ACK %d\n" % event[0])
            peer.finish()
            run.expect_success()
            peer.expect_nothing_more("one ACK an event")
            if publisher.has_another():
                case.fail("one process is one session", "it connects a second time", look="loops around run_client")
            expect_books(case, path, books_after(events[: have + 2]), "after the process has ended")


def _nothing_to_do(case: Case) -> None:
    """A session without an event is a clean one, and HOST is where the publisher is."""
    path = case.new_folder() / "new.db"
    with Publisher(case, host=OTHER_HOST) as publisher:
        case.story.peer(f"listens at {publisher.host}, which is the HOST that is given")
        with Command(case, publisher.port, path, host=publisher.host) as run:
            peer = publisher.accept(run.child)
            peer.expect(b"RESUME -1\n")
            peer.finish()
            run.expect_success()


def _timeout_is_used(case: Case, timeout: float) -> None:
    """`--timeout S` bounds the waits: a silent publisher is left after about S seconds, not after the default of 5."""
    options = ("--timeout", str(timeout))
    longest = timeout * ONE_WAIT
    with (
        Publisher(case) as publisher,
        Command(case, publisher.port, new_store(case), *options, longest_wait=longest) as run,
    ):
        publisher.accept(run.child).expect(b"RESUME -1\n")
        case.story.peer("sends nothing, and keeps the connection open")
        expected = f"with --timeout {timeout:g}, a silent publisher is left after about {timeout:g} s"
        where = case.own_line_with("run_client(")
        look = "the call of run_client in main"
        if waiting.wait(run.child) is News.ASLEEP:
            raise Proven(expected, "it goes on waiting", "--timeout is not passed on to run_client", look, where)
        run.ending()
        if run.waits_too_long:
            raise Proven(expected, f"it is made to wait for more than {longest:.2g} s", OTHER_LIMIT, look, where)


@STEP.rule(0.5)
def failures(case: Case) -> None:
    """An expected failure is told in one last line on standard error: no traceback, and an exit status that is not
    0.
    """
    told: dict[str, str] = {}
    parts = [partial(_fail_as, kind=kind, told=told) for kind in KINDS]
    case.side_by_side(*(partial(with_short_timeout, part=part) for part in parts))
    if len(set(told.values())) == 1:
        case.fail(
            "the last line on standard error says what failed",
            f"it is `{told['gap'][:SHOWN]}` for every kind of failure, from a refused connection to a conflict",
            "the message does not hold the error",
            "what main prints to sys.stderr",
            where=case.own_line_with("stderr"),
        )


KINDS = ("refused", "timeout", "reset", "protocol", "gap", "conflict")


def _fail_as(case: Case, timeout: float, kind: str, told: dict[str, str]) -> None:
    """One session that fails in the way `kind`; the last line on standard error goes into `told`."""
    events = make_events(case, 1)
    path = new_store(case, events)
    with contextlib.ExitStack() as stack:
        if kind == "refused":
            port = stack.enter_context(contextlib.contextmanager(free_port)(case))
            case.story.peer("is not there: nobody listens on the port")
            run = stack.enter_context(Command(case, port, path))
        else:
            publisher = stack.enter_context(Publisher(case))
            options = ("--timeout", str(timeout)) if kind == "timeout" else ()
            run = stack.enter_context(Command(case, publisher.port, path, *options, may_sleep=kind == "timeout"))
            peer = publisher.accept(run.child)
            peer.expect(b"RESUME 0\n")
            _misbehave(peer, kind, events[0])
        ending = run.ending()
        if run.attempts > 1 or (kind != "refused" and publisher.has_another()):
            where = case.own_line_with("asyncio.run(")
            again = f"the process connects a second time ({kind})"
            case.fail("one process is one session: a failure is told, not tried again", again, where=where)
        last = run.last_line()
        story = f"its last line on standard error: `{last[:SHOWN]}`" if last else "it says nothing on standard error"
        case.story.program(story)
        where = case.own_line_with("except", "asyncio.run")
        if ending.signal or ending.status == 0:
            case.fail(f"an exit status that is not 0 ({kind})", f"{ending}", where=where)
        if "Traceback (most recent call last)" in run.child.standard_error():
            missing = f"main does not expect this error ({kind})"
            case.fail(
                "no traceback for an expected failure",
                f"a traceback that ends with `{last[:SHOWN]}`",
                missing,
                where=where,
            )
        if not last:
            case.fail(f"a last line on standard error that says what failed ({kind})", "nothing", where=where)
        told[kind] = last


def _misbehave(peer: Connection, kind: str, event: tuple[int, int]) -> None:
    match kind:
        case "timeout":
            peer.case.story.peer("sends nothing, and keeps the connection open")
        case "reset":
            peer.reset()
        case "protocol":
            peer.send(b"HELLO\n")
        case "gap":
            peer.send(b"EVENT 5 1\n")
        case "conflict":
            peer.send(b"EVENT 0 %d\n" % -event[1])


@STEP.rule(0.5)
def exit_before_ack(case: Case) -> None:
    """`--exit-before-ack SEQ` ends the process with `os._exit(17)` after the COMMIT of SEQ and before its ACK, for 0
    too.
    """
    large = case.random.randint(100, 140)
    case.side_by_side(partial(_exits_before, seq=0, have=0), partial(_exits_before, seq=large, have=large - 2))


def _exits_before(case: Case, seq: int, have: int) -> None:
    events = make_events(case, seq + 2)
    path = new_store(case, events[:have])
    with Publisher(case) as publisher, Command(case, publisher.port, path, "--exit-before-ack", str(seq)) as run:
        peer = publisher.accept(run.child)
        peer.expect(b"RESUME %d\n" % (have - 1))
        for event in events[have : seq + 1]:
            peer.send(line_of(event))
            if event[0] < seq:
                peer.expect(b"ACK %d\n" % event[0])
        _expect_cut(case, run, seq)
        peer.expect_nothing_more(f"ACK {seq} is never written")
        expect_books(case, path, books_after(events[: seq + 1]), "after the process has ended")
    case.story.peer(f"goes on after event {seq}, so the receiver has no ACK of it to write")
    with Publisher(case) as publisher, Command(case, publisher.port, path, "--exit-before-ack", str(seq)) as run:
        peer = publisher.accept(run.child)
        peer.expect(b"RESUME %d\n" % seq)
        peer.send(line_of(events[-1]))
        peer.expect(b"ACK %d\n" % events[-1][0], f"this is not the event that --exit-before-ack {seq} names")
        peer.finish()
        run.expect_success()


def _expect_cut(case: Case, run: Command, seq: int) -> None:
    expected = f"--exit-before-ack {seq} ends the process with status 17"
    cause = "0 is taken for `no number given`" if seq == 0 else ""
    look_at = "how the option is compared with seq: a number with a number, and 0 is false, but it is not None"
    ending = run.ending(expected, cause, look_at)
    where = case.own_line_with("_exit", "exit_before_ack", "before_ack")
    if ending != Ending(17):
        case.fail(expected, f"{ending}", cause, look_at, where=where)
    if run.unwound is not None:
        case.fail(
            "the process ends at once, as when the power goes out: os._exit",
            f"it ended in order, by {run.unwound.get('by')}: `finally` and clean-up ran first",
            "sys.exit raises SystemExit, which closes everything on its way out",
            "os._exit(17)",
            where=where,
        )


@STEP.rule(0.5)
def two_processes(case: Case) -> None:
    """The first process stores 0 and 1 and dies before ACK 1; the second resumes at 1, is sent 1 again, and counts it
    once.
    """
    events = make_events(case, 3)
    path = case.new_folder() / "machine.db"
    with Publisher(case) as publisher:
        with Command(case, publisher.port, path, "--exit-before-ack", "1", real=True) as first:
            peer = publisher.accept(first.child)
            peer.expect(b"RESUME -1\n")
            peer.send(line_of(events[0]))
            peer.expect(b"ACK 0\n")
            peer.send(line_of(events[1]))
            expected = "the first process ends with status 17 before ACK 1"
            ending = first.ending(expected, "--exit-before-ack 1 does not end it", "what is compared with seq, and how")
            if ending != Ending(17):
                case.fail(expected, str(ending))
            peer.expect_nothing_more("ACK 1 is never written by the first process")
        expect_books(case, path, books_after(events[:2]), "between the two processes")
        with Command(case, publisher.port, path, real=True) as second:
            peer = publisher.accept(second.child)
            peer.expect(b"RESUME 1\n", "event 1 is stored, though its ACK was lost")
            for event in events[1:]:
                peer.send(line_of(event))
                peer.expect(b"ACK %d\n" % event[0])
            peer.finish()
            second.expect_success()
            peer.expect_nothing_more("the second process acknowledges 1 and 2, once each")
        expect_books(case, path, books_after(events), "in the end", "event 1 was lost, or counted twice")


@STEP.rule(1.0, explores=True)
def killed_anywhere(case: Case) -> None:
    """Killed at any line of a session and started again: no event is lost, none is counted twice, no ACK was a lie."""
    explore(case, SessionAndDie(make_events(case, 3), SESSIONS if case.thorough else ()), whole=True)


class SessionAndDie:
    """A session with three events and a resent one is ended anywhere; the next process carries on with the same
    file.
    """

    def __init__(self, events: Sequence[tuple[int, int]], sessions: Sequence[str] = ()) -> None:
        self.events = events
        self.sessions = sessions

    def life(self, world: World) -> Job:
        peer = world.peer
        assert isinstance(peer, StopAndWait)
        return world.case.job(
            AS_MAIN, folder=world.folder, argv=[HOST, str(peer.port), str(world.store), "--timeout", "30"], load=False
        )

    def peer(self, case: Case) -> AbstractContextManager[Any] | None:
        return StopAndWait(case.crew.workshop.tcp_socket(), self.events, self.sessions)

    def tell(self, world: World) -> None:
        """The publisher has told it all while it happened."""

    def after_crash(self, world: World) -> Hashable:
        peer = world.peer
        assert isinstance(peer, StopAndWait)
        case = world.case
        if peer.trouble:
            self.fail_at_trouble(world, peer)
        found = crash_books(world)
        if found.trouble():
            case.fail(
                "total is the ledger's sum, last its greatest seq, and there is no hole", found.trouble(), BETWEEN
            )
        if found.last < peer.acknowledged:
            case.fail(
                f"event {peer.acknowledged}, whose ACK the publisher has seen, is in the store",
                f"the next process finds {found}",
                "the ACK left before the COMMIT",
                "the order of COMMIT and writer.write",
            )
        peer.committed = found.last
        return found

    def after_life(self, world: World) -> bool:
        peer = world.peer
        assert isinstance(peer, StopAndWait)
        case = world.case
        if peer.trouble:
            self.fail_at_trouble(world, peer)
        if peer.last_session == "gap":
            self.expect_refusal(world, peer)
            return False
        if world.ending != Ending(0):
            words = world.last_words.strip().splitlines()
            told = f"; its last line on standard error is `{words[-1][:SHOWN]}`" if words else ""
            case.fail("the session ends with exit status 0", f"{world.ending}{told}", BETWEEN)
        expected = books_after(self.events[: peer.acknowledged + 1])
        found = crash_books(world)
        if found != expected:
            case.fail(f"in the end the store says {expected}", f"it says {found}", BETWEEN)
        peer.committed = found.last
        return len(expected.ledger) == len(self.events)

    def expect_refusal(self, world: World, peer: StopAndWait) -> None:
        """After an event too far ahead: a failure, and nothing of it in the store."""
        if world.ending is None or world.ending.status == 0:
            world.case.fail("an event that is too far ahead ends the session with a failure", f"{world.ending}", AHEAD)
        found = crash_books(world)
        if found.last != peer.committed or found.trouble():
            world.case.fail(f"last stays {peer.committed}", f"{found}", AHEAD)

    def fail_at_trouble(self, world: World, peer: StopAndWait) -> NoReturn:
        assert peer.trouble is not None
        del world.story.events[peer.trouble_at :]  # what came after the first broken promise only hides it
        world.case.fail(*peer.trouble)


SESSIONS = ("close", "gap")  # then the publisher has its log again, and goes on
AHEAD = "the gap is taken for the next event; what lies between is lost"
BETWEEN = "what is stored together and what is stored apart: a crash falls between any two COMMITs"
