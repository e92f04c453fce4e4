"""One `run_client` in a child, the publisher that it talks to, and what must be left when it comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from graders.engine.processes import Child
from graders.engine.rules import Broken, Call, Case
from graders.engine.story import Story
from graders.receiver import waiting
from graders.receiver.probes import SESSION
from graders.receiver.publisher import Connection, Publisher
from graders.receiver.waiting import News

LONG = 30.0  # seconds: a timeout that no right program ever reaches
SHORT = 0.2  # seconds: a timeout that is meant to be reached
LONGER = 1.5  # seconds: the same, where a busy machine may have used up SHORT before it was meant to be
ONE_WAIT = 1.9  # times `timeout`, for which a silence is meant to last at most; twice as long is another timeout
TWO_WAITS = 2.9


class Session:
    """A `run_client` in a child, and the publisher that it talks to. Use as a context manager."""

    def __init__(self, case: Case, path: Path, *, port: int | None = None, **arguments: Any) -> None:
        self.case = case
        self.path = path
        self.publisher = Publisher(case, **arguments.pop("listener", {}))
        patience = arguments.pop("patience", 15.0)
        arguments.setdefault("timeout", LONG)
        arguments |= {
            "host": self.publisher.host,
            "port": self.publisher.port if port is None else port,
            "path": str(path),
        }
        self.arguments = arguments
        try:
            self.child: Child = case.start(SESSION, arguments, patience=patience)
        except BaseException:
            self.publisher.__exit__()
            raise
        self.facts: Mapping[str, Any] = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.__exit__()
        self.publisher.__exit__()

    def accept(self, last: int) -> Connection:
        """The connection, after a right RESUME."""
        connection = self.publisher.accept(self.child)
        connection.expect(b"RESUME %d\n" % last, "the committed cursor comes first")
        return connection

    def outcome(
        self,
        answer: Callable[[dict[str, Any]], Mapping[str, Any] | None] | None = None,
        expected: str = "run_client comes back",
        cause: str = "it waits for what will not come any more",
        look_at: str = "how the session ends, and what is still waited for then",
    ) -> Call:
        """What run_client came back with. One that connects again, sleeps for good, or never rests, breaks the rule."""
        if answer is None:
            match waiting.wait(self.child, self.publisher.listener):
                case News.READY:
                    self.case.story.peer("sees another connection come in")
                    self.fail_retried()
                case News.ASLEEP:
                    where = waiting.where_it_sleeps(self.case, self.child)
                    told = f"it sleeps for good{f', at {where}' if where else ''}"
                    self.case.fail(expected, told, cause, look_at, where=where)
                case News.LATE:
                    self.case.fail(
                        expected,
                        f"it was still busy after {self.child.job.patience:g} s, and was ended",
                        "a loop that does not end, or a short wait that begins again and again",
                        "loops, and what ends each of them",
                        where=self.case.own_line_with("while", "for "),
                    )
        self.facts = self.case.result(self.child, answer)
        return self._told()

    def came_back(self, message: dict[str, Any]) -> Call:
        """The same, for who has taken the child's last report already."""
        self.facts = self.case.call(message).returned
        return self._told()

    def _told(self) -> Call:
        call = self.case.call(self.facts["call"])
        self.case.story.program(f"run_client {call}")
        return call

    def fail_retried(self) -> NoReturn:
        raise Proven(
            "run_client comes back: one call is one connection",
            "it connects a second time",
            "a second try hides from the caller that something went wrong",
            "loops around asyncio.open_connection, and second calls after an error",
            self.case.own_line_with("while", "for ", "open_connection"),
        )

    def expect_return(self, last: int) -> None:
        expected = f"run_client returns {last}, the committed cursor, when the publisher has closed at a line boundary"
        look_at = "how the end of the stream is recognised"
        call = self.outcome(expected=expected, look_at=look_at)
        if call.raised is not None or call.returned != last:
            look_at = look_at if call.raised else "what run_client returns: the cursor that the store holds by then"
            self.case.fail(expected, f"it {call}", look=look_at, where=call.place)

    def expect_raise(self, error: str, why: str, cause: str = "", look_at: str = "") -> Call:
        expected = f"run_client raises {error}: {why}"
        call = self.outcome(expected=expected, cause=cause, look_at=look_at)
        if not call.raised_a(error):
            self.case.fail(expected, f"it {call}", cause, look_at, where=call.place)
        return call

    def expect_given_back(self, told: str, *, at_once: bool = True) -> None:
        """Nothing is left: no socket, no store descriptor, no task, no ResourceWarning."""
        left = self.facts["open_at_once" if at_once else "open_later"]
        where = self.case.own_line_with("close(", "wait_closed", "open_connection")
        if left["store"]:
            self.case.fail(
                f"after {told}, the connection to SQLite is closed",
                "the store's descriptor is still open",
                "con.close() is missing on this way out",
                "a `finally` around everything after open_store",
                where=self.case.own_line_with("open_store(") or where,
            )
        if left["sockets"]:
            later = self.facts["open_later"]["sockets"]
            self.case.fail(
                f"after {told}, the writer is closed and waited for",
                "the socket is still open when run_client comes back" + ("" if later else ", and is closed only later"),
                "writer.close() is missing on this way out"
                if later
                else "wait_closed() is not awaited on this way out",
                "a `finally` with writer.close() and await writer.wait_closed()",
                where=where,
            )
        if self.facts["tasks"]:
            self.case.fail(
                f"after {told}, no task is left behind",
                f"{self.facts['tasks']} still there when run_client comes back",
                "a task is made, and neither awaited nor cancelled on this way out",
                "what makes tasks: create_task, ensure_future, asyncio.wait, shield",
                where=self.case.own_line_with("create_task(", "ensure_future(", "asyncio.wait(", "shield("),
            )
        if self.facts["warnings"]:
            text = self.facts["warnings"][0]
            self.case.fail(f"no ResourceWarning after {told}", f"Python warns: {text[:120]}", where=where)


class Proven(Broken):
    """Broken, however busy the machine was."""


def with_short_timeout(case: Case, part: Callable[[Case, float], None]) -> None:
    """Judge `part` with a timeout that is reached soon, and where it fails for want of time, with a longer one."""
    quick = replace(case, story=Story())
    try:
        part(quick, SHORT)
    except Proven as broken:
        broken.story = quick.story
        raise
    except Broken:
        part(case, LONGER)


def expect_timeout(run: Session, why: str, look_at: str) -> None:
    """TimeoutError, in time. A receiver that is meant to wait for longer does not use `timeout` there."""
    case, timeout = run.case, run.arguments["timeout"]
    expected = f"run_client raises TimeoutError after about {timeout:g} s: {why}"
    cause = "this wait has no limit of its own, or does not use the argument `timeout`"
    news = waiting.wait(run.child, run.publisher.listener)
    if news is News.READY:
        case.story.peer("sees another connection come in")
        run.fail_retried()
    if news is News.ASLEEP:
        where = waiting.where_it_sleeps(case, run.child)
        place = f", at {where}" if where else ""
        raise Proven(expected, f"it goes on waiting{place}", cause, look_at, where or case.own_line_with("await"))
    too_long = False
    for message in run.child.messages():
        match message.get("event"):
            case "waits":
                too_long = True
            case "woken":
                too_long = False
            case "finished":
                call = run.came_back(message)
                if not call.raised_a("TimeoutError"):
                    case.fail(f"run_client raises TimeoutError: {why}", f"it {call}", look=look_at, where=call.place)
                if too_long:
                    told = f"it is made to wait for more than {run.arguments['longest_wait']:.2g} s, and then {call}"
                    raise Proven(expected, told, OTHER_LIMIT, look_at, call.place)
                return
    if run.child.timed_out:
        told = f"it was still waiting after {run.child.job.patience:g} s, and was ended"
        case.fail(expected, told, cause, look_at, where=case.own_line_with("await"))
    case.fail_silent(run.child)


OTHER_LIMIT = "this wait, or the waits after it, have another limit than the argument `timeout`"
