"""Where a running learner program can be stopped: at every instruction of its file, every SQL statement, every write to
a socket.

In the mode `pause` the child waits at each stop until the judge has looked at the world. In the mode `kill` it sends
itself SIGKILL at the given stop: no `finally`, no `atexit`, no flush, as when the power goes out. A stop is named by
its line, its kind, and how often the pair has been met before, which other threads cannot shift. The kinds: `line`, the
first instruction of a line; `instruction`, any other; `statement`, where SQLite begins one, also inside
`executescript` and inside COMMIT's own work; `write`, where bytes are about to go to a socket.
"""

from __future__ import annotations

import _thread
import dis
import os
import signal
import socket
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graders.engine.child import Session

At = tuple[int, str, int]  # line (0: none, or a library's), kind, occurrence from 1
MOMENTS = {  # when that is, of a line
    "line": "before {}",
    "instruction": "while {} runs",
    "statement": "inside {}",
    "write": "before the write in {}",
}

# Nobody outside can tell whether one of these has run: it stays between the frame and the interpreter. What Python code
# it may call (a property, a comparison) has stops of its own. Calls, awaits, iteration and all that may free an object
# are not among them.
UNSEEN = frozenset(
    dis.opmap[name]
    for name in (
        *("CACHE", "NOP", "EXTENDED_ARG", "PUSH_NULL", "PRECALL", "KW_NAMES", "COPY", "SWAP", "RESUME", "TO_BOOL"),
        *("LOAD_CONST", "LOAD_FAST", "LOAD_FAST_LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLOSURE"),
        *("LOAD_ATTR", "LOAD_METHOD", "LOAD_BUILD_CLASS", "MAKE_CELL", "COPY_FREE_VARS", "RETURN_GENERATOR"),
        *("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_STRING", "BUILD_CONST_KEY_MAP", "BUILD_SLICE"),
        *("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "FORMAT_VALUE", "FORMAT_SIMPLE", "CONVERT_VALUE"),
        *("IS_OP", "CONTAINS_OP", "COMPARE_OP", "BINARY_OP", "BINARY_SUBSCR", "UNARY_NOT", "UNARY_NEGATIVE"),
        *("JUMP_FORWARD", "JUMP_BACKWARD", "GET_AWAITABLE", "UNPACK_SEQUENCE", "LIST_EXTEND"),
        *(name for name in dis.opmap if "JUMP_" in name and "_IF_" in name),
    )
    if name in dis.opmap
)
NEW_NAME = dis.opmap["STORE_NAME"]


def name_of(at: At) -> str:
    """A stop as one word, `line:kind:occurrence`, for a command line."""
    return ":".join(map(str, at))


def stop_named(name: str) -> At:
    """The inverse of `name_of`. Raises ValueError."""
    line, kind, occurrence = name.split(":")
    if kind not in (*MOMENTS, "end"):
        raise ValueError(f"there is no kind of stop {kind!r}")
    return int(line), kind, int(occurrence)


def watch(session: Session, path: str, mode: str, detail: str, at: At | None) -> None:
    """From now on every stop in the file at `path` is met: `detail` is `line` or `instruction`; `at` is for the mode
    `kill`.
    """
    watcher = _Watcher(session, path, mode, detail == "instruction", at)
    kinds = MOMENTS if at is None else {at[1]}  # a program that is ended at a write need not stop at its lines
    if "statement" in kinds:
        _trace_statements(watcher)
    if "write" in kinds:
        _trace_writes(watcher)
    if "line" in kinds or "instruction" in kinds:
        _trace_threads(watcher)
        sys._getframe().f_trace_opcodes = watcher.instructions  # Python 3.12 looks for such a frame in settrace
        sys.settrace(watcher.trace)


class _Watcher:
    def __init__(self, session: Session, path: str, mode: str, instructions: bool, at: At | None) -> None:
        self.session = session
        self.path = path
        self.mode = mode
        self.instructions = instructions
        self.at = at
        self.met: Counter[tuple[int, str]] = Counter()
        self.unseen: list[At] = []  # stops since the last pause at which the world was the same as there
        self.line_of: FrameType | None = None  # the frame that has just come to another line
        self.before: FrameType | None = None  # the frame whose last instruction nobody could see
        self.threads = False
        self.lock = threading.RLock()

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != self.path or not self.may_stop_in(frame.f_code):
            return None
        frame.f_trace = self.trace_inside  # Python 3.13 takes the next line only where this one is there
        frame.f_trace_opcodes = self.instructions
        return self.trace_inside

    def may_stop_in(self, code: CodeType) -> bool:
        """Whether the code has a stop at which this watcher does something."""
        return self.at is None or self.at[0] in _lines(code)

    def trace_inside(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            kind = "line" if self.line_of is frame else "instruction"
            self.line_of = None
            same = self.before is frame and not self.threads
            self.before = frame if self.nobody_sees(frame) else None
            self.stop(frame.f_lineno or 0, kind, same)  # what Python adds may have no line
        elif event == "line":
            if self.instructions:
                self.line_of = frame
            else:
                self.stop(frame.f_lineno, "line")
        return self.trace_inside

    def nobody_sees(self, frame: FrameType) -> bool:
        """Whether the instruction that comes next leaves the world as it is."""
        unseen, names = _instructions(frame.f_code)
        if frame.f_lasti in names:
            return names[frame.f_lasti] not in frame.f_globals and frame.f_code.co_name == "<module>"
        return frame.f_lasti in unseen

    def outside(self, kind: str) -> None:
        """A stop below the learner's code, in a library that it has called, or that the event loop has."""
        self.before = None
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.path:
            frame = frame.f_back
        self.stop(frame.f_lineno or 0 if frame is not None else 0, kind)

    def stop(self, line: int, kind: str, same: bool = False) -> None:
        with self.lock:
            self.met[line, kind] += 1
            here = (line, kind, self.met[line, kind])
            if self.mode == "kill":
                if here == self.at:
                    self.session.tell("killing", at=here)
                    os.kill(os.getpid(), signal.SIGKILL)
            elif self.mode == "over":
                pass  # the judge has seen enough
            elif same:
                self.unseen.append(here)
            else:
                unseen, self.unseen = self.unseen, []
                answer = self.session.ask("stop", at=here, unseen=unseen, threads=self.threads)
                if not answer.get("more", True):
                    self.mode = "over"


@cache
def _lines(code: CodeType) -> frozenset[int]:
    """The lines that a code's instructions stand on, 0 for those that stand on none."""
    return frozenset(line or 0 for _, _, line in code.co_lines()) | {0}


@cache
def _instructions(code: CodeType) -> tuple[frozenset[int], dict[int, str]]:
    """The offsets of a code's instructions that nobody sees, and of those that bind a name of the module."""
    operations = list(enumerate(code.co_code[::2]))
    unseen = frozenset(2 * index for index, operation in operations if operation in UNSEEN)
    names = {2 * index: operation for index, operation in operations if operation == NEW_NAME}
    return unseen, {offset: code.co_names[code.co_code[offset + 1]] for offset in names}


def _trace_threads(watcher: _Watcher) -> None:
    """Every thread that Python code starts is watched, and that there is one is known."""

    def traced(start: Callable[..., Any]) -> Callable[..., Any]:
        def begin(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            watcher.threads = True

            def run(*values: Any, **options: Any) -> Any:
                sys.settrace(watcher.trace)
                return function(*values, **options)

            return start(run, *arguments, **named)

        return begin

    for name in ("start_new_thread", "start_joinable_thread"):  # the latter is Python 3.13's
        if hasattr(_thread, name):
            begin = traced(getattr(_thread, name))
            setattr(_thread, name, begin)
            setattr(threading, f"_{name}", begin)


def _trace_statements(watcher: _Watcher) -> None:
    """`sqlite3.connect` gives connections that report each statement, those inside `executescript` too."""
    connect = sqlite3.connect

    def traced(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **named)
        connection.set_trace_callback(lambda _: watcher.outside("statement"))
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]
    sqlite3.dbapi2.connect = traced  # type: ignore[assignment]


def _trace_writes(watcher: _Watcher) -> None:
    """Sockets stop before they write. `asyncio` and `socketserver` write through these methods too."""

    def traced(method: Callable[..., Any]) -> Callable[..., Any]:
        def write(self: socket.socket, *arguments: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6):  # the event loop wakes itself over another kind
                watcher.outside("write")
            return method(self, *arguments)

        return write

    for name in ("send", "sendall", "sendto", "sendmsg"):
        setattr(socket.socket, name, traced(getattr(socket.socket, name)))
