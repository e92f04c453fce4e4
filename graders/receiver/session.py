"""One `run_client` in a child, the publisher that it talks to, and what must be left when it comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from graders.engine.processes import Child
from graders.engine.program import Place
from graders.engine.rules import Call, Case
from graders.receiver import waiting
from graders.receiver.probes import SESSION
from graders.receiver.publisher import Connection, Publisher
from graders.receiver.waiting import News

LONG = 30.0  # seconds: a timeout that no right program ever reaches
SHORT = 0.3  # seconds: a timeout that is meant to be reached
IN_TIME = 4.0  # seconds in which a timeout of SHORT must have shown; below the default of 5
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

    def outcome(self, answer: Callable[[dict[str, Any]], Mapping[str, Any] | None] | None = None) -> Call:
        """What run_client came back with."""
        if answer is None:
            self.await_end()
        self.facts = self.case.result(self.child, answer)
        return self._told()

    def came_back(self, message: dict[str, Any]) -> Call:
        """The same, for who has taken the child's last report already."""
        self.facts = self.case.call(message).returned
        return self._told()

    def _told(self) -> Call:
        call = self.case.call(self.facts["call"])
        self.case.story.receiver(f"run_client {call}")
        return call

    def await_end(self) -> None:
        """Until run_client has come back. One that connects again, sleeps for good, or never rests, does not."""
        match waiting.wait(self.child, self.publisher.listener):
            case News.READY:
                self.fail_retried()
            case News.LATE:
                self.case.fail(
                    "run_client comes back",
                    f"it was still busy after {self.child.job.patience:g} s, and was ended",
                    "a loop that does not end, or a short wait that begins again and again",
                    "loops, and what ends each of them",
                    where=own_line_with(self.case, "while", "for "),
                )
            case News.ASLEEP:
                where = waiting.where_it_sleeps(self.case, self.child)
                self.case.fail(
                    "run_client comes back",
                    f"it sleeps for good{f', at {where}' if where else ''}",
                    "it waits for what will not come any more",
                    "how the session ends, and what is still waited for then",
                    where=where,
                )

    def fail_retried(self) -> NoReturn:
        self.case.story.publisher("sees another connection come in")
        self.case.fail(
            "run_client comes back: one call is one connection",
            "it connects a second time",
            "a second try hides from the caller that something went wrong",
            "loops around asyncio.open_connection, and second calls after an error",
            where=own_line_with(self.case, "while", "for ", "open_connection"),
        )

    def expect_return(self, last: int) -> None:
        call = self.outcome()
        if call.raised is not None or call.returned != last:
            self.case.fail(
                f"run_client returns {last}, the committed cursor, when the publisher has closed at a line boundary",
                f"it {call}",
                look="how the end of the stream is recognised",
                where=call.place,
            )

    def expect_raise(self, error: str, why: str, cause: str = "", look_at: str = "") -> Call:
        call = self.outcome()
        if not call.raised_a(error):
            self.case.fail(f"run_client raises {error}: {why}", f"it {call}", cause, look_at, where=call.place)
        return call

    def expect_given_back(self, told: str, *, at_once: bool = True) -> None:
        """Nothing is left: no socket, no store descriptor, no task, no ResourceWarning."""
        left = self.facts["open_at_once" if at_once else "open_later"]
        where = own_line_with(self.case, "close(", "wait_closed", "open_connection")
        if left["store"]:
            self.case.fail(
                f"after {told}, the connection to SQLite is closed",
                "the store's descriptor is still open",
                "con.close() is missing on this way out",
                "a `finally` around everything after open_store",
                where=own_line_with(self.case, "open_store(") or where,
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
            self.case.fail(f"after {told}, no task is left behind", f"{self.facts['tasks']} still runs", where=where)
        if self.facts["warnings"]:
            text = self.facts["warnings"][0]
            self.case.fail(f"no ResourceWarning after {told}", f"Python warns: {text[:120]}", where=where)


def expect_timeout(run: Session, why: str, look_at: str) -> None:
    """TimeoutError, in time. A receiver that is meant to wait for longer does not use `timeout` there."""
    case = run.case
    expected = f"run_client raises TimeoutError after about {SHORT} s: {why}"
    cause = "this wait has no limit of its own, or does not use the argument `timeout`"
    news = waiting.wait(run.child, run.publisher.listener)
    if news is News.READY:
        run.fail_retried()
    if news is News.ASLEEP:
        where = waiting.where_it_sleeps(case, run.child)
        place = f", at {where}" if where else ""
        case.fail(expected, f"it goes on waiting{place}", cause, look_at, where=where or own_line_with(case, "await"))
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
                    told = f"it is made to wait for more than {run.arguments['longest_wait']:.1f} s, and then {call}"
                    case.fail(expected, told, OTHER_LIMIT, look_at, where=call.place)
                return
    if run.child.timed_out:
        told = f"it was still waiting after {run.child.job.patience:g} s, and was ended"
        case.fail(expected, told, cause, look_at, where=own_line_with(case, "await"))
    case.fail_silent(run.child)


OTHER_LIMIT = "this wait, or the waits after it, have another limit than the argument `timeout`"


def own_line_with(case: Case, *words: str) -> Place | None:
    """The first line of the step's own section that holds one of `words`; of the whole file where it has none."""
    marker = f"# %% {case.rule.partition('/')[0]}"
    lines = case.program.lines
    begin = max((row for row, line in enumerate(lines) if line.text.startswith(marker)), default=0)
    section = replace(case, program=replace(case.program, lines=lines[begin:]))
    return section.lines_with(*words) or case.lines_with(*words)
