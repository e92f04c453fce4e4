"""Where a running learner program can be stopped: at every line of its file, every return, and every SQL statement.

In the mode `pause` the child waits at each stop until the judge has looked at the world. In the mode `kill` it sends
itself SIGKILL at the given stop: no `finally`, no `atexit`, no flush, as when the power goes out. A stop is named by
its line, its kind, and how often the pair has been met before, which other threads cannot shift.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from collections import Counter
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graders.engine.child import Session


def watch(session: Session, path: str, mode: str, at: tuple[int, str, int] | None) -> None:
    """From now on every stop in the file at `path` is met; `at` (line, kind, occurrence from 1) is for the mode
    `kill`.
    """
    watcher = _Watcher(session, path, mode, at)
    threading.settrace(watcher.trace)
    sys.settrace(watcher.trace)
    _trace_statements(watcher)


class _Watcher:
    def __init__(self, session: Session, path: str, mode: str, at: tuple[int, str, int] | None) -> None:
        self.session = session
        self.path = path
        self.mode = mode
        self.at = at
        self.met: Counter[tuple[int, str]] = Counter()
        self.line = 0
        self.lock = threading.RLock()

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self.trace_line if frame.f_code.co_filename == self.path else None

    def trace_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" or event == "return":
            self.line = frame.f_lineno
            self.stop(event)
        return self.trace_line

    def statement(self, sql: str) -> None:
        self.stop("statement")

    def stop(self, kind: str) -> None:
        with self.lock:
            self.met[self.line, kind] += 1
            here = (self.line, kind, self.met[self.line, kind])
            if self.mode == "pause":
                self.session.ask("stop", at=here)
            elif here == self.at:
                self.session.tell("killing", at=here)
                os.kill(os.getpid(), signal.SIGKILL)


def _trace_statements(watcher: _Watcher) -> None:
    """`sqlite3.connect` gives connections that report each statement, those inside `executescript` too."""
    connect = sqlite3.connect

    def traced(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **named)
        connection.set_trace_callback(watcher.statement)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]
    sqlite3.dbapi2.connect = traced  # type: ignore[assignment]
