"""One `run_client` in a child, the publisher that it talks to, and what must be left when it comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graders.engine.processes import Child
from graders.engine.rules import Call, Case
from graders.receiver.probes import SESSION
from graders.receiver.publisher import Connection, Publisher

LONG = 30.0  # seconds: a timeout that no right program ever reaches
SHORT = 0.3  # seconds: a timeout that is meant to be reached
IN_TIME = 4.0  # seconds in which a timeout of SHORT must have shown; below the default of 5


class Session:
    """A `run_client` in a child, and the publisher that it talks to. Use as a context manager."""

    def __init__(self, case: Case, path: Path, *, port: int | None = None, **arguments: Any) -> None:
        self.case = case
        self.path = path
        self.publisher = Publisher(case, **arguments.pop("listener", {}))
        patience = arguments.pop("patience", 15.0)
        arguments.setdefault("timeout", LONG)
        arguments |= {"port": self.publisher.port if port is None else port, "path": str(path)}
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
        self.facts = self.case.result(self.child, answer)
        call = self.case.call(self.facts["call"])
        self.case.story.receiver(f"run_client {call}")
        return call

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
        where = self.case.lines_with("close(", "wait_closed", "open_connection")
        if left["store"]:
            self.case.fail(
                f"after {told}, the connection to SQLite is closed",
                "the store's descriptor is still open",
                "con.close() is missing on this way out",
                "a `finally` around everything after open_store",
                where=self.case.lines_with("open_store(") or where,
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
    """TimeoutError, in time. A receiver that is still waiting after IN_TIME does not use `timeout` there."""
    for message in run.child.messages():
        if message.get("event") == "finished":
            run.facts = run.case.call(message).returned
            call = run.case.call(run.facts["call"])
            run.case.story.receiver(f"run_client {call}")
            if not call.raised_a("TimeoutError"):
                run.case.fail(f"run_client raises TimeoutError: {why}", f"it {call}", look=look_at, where=call.place)
            return
        if message.get("ask"):
            run.child.go_on()
    if run.child.timed_out:
        run.case.fail(
            f"run_client raises TimeoutError after about {SHORT} s: {why}",
            f"it was still waiting after {IN_TIME:g} s, and was ended",
            "this wait has no limit of its own, or does not use the argument `timeout`",
            look_at,
            where=run.case.lines_with("await"),
        )
    run.case.fail_silent(run.child)
