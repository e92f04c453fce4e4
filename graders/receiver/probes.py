"""Probes of the unit `receiver`: they run in the child, drive the learner's functions, and report what they saw.

No expected value is known here. What a probe is told to do comes from the rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import selectors
import signal
import socket
import sqlite3
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any, NoReturn

from graders.engine.child import Session, run_as_main

HERE = "graders.receiver.probes"
PARSE = f"{HERE}:parse_lines"
PARSED_EQUALS = f"{HERE}:parsed_equals"
OPEN = f"{HERE}:open_once"
OPEN_AND_TOUCH = f"{HERE}:open_and_touch"
APPLY = f"{HERE}:apply_events"
RELATED = f"{HERE}:related_exceptions"
REPLAY = f"{HERE}:replays"
CONSUME = f"{HERE}:consume_lines"
SESSION = f"{HERE}:run_session"
MAIN = f"{HERE}:run_main"


class Injected(BaseException):
    """An error of the judge's making that no program can have prepared for."""


class Anything(LookupError, RuntimeError, ArithmeticError, OSError, ValueError):
    """An error of many kinds at once: whichever of them a program catches, it catches this."""


FAULTS: Mapping[str, type[BaseException]] = {
    "ValueError": ValueError,
    "OSError": OSError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": SystemExit,
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "OperationalError": sqlite3.OperationalError,
    "Injected": Injected,
    "Anything": Anything,
}


def parse_lines(session: Session, client: ModuleType, lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """`parse_line` on each line."""
    return [session.attempt(client.parse_line, line) for line in lines]


def parsed_equals(
    session: Session, client: ModuleType, line: bytes, candidates: Sequence[tuple[int, int]]
) -> list[bool]:
    """Which of the candidates, among them the judge's, compare equal to what `parse_line` returns."""
    value = client.parse_line(line)
    return [bool(value == candidate) for candidate in candidates]


def related_exceptions(session: Session, client: ModuleType, names: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs (a, b) of `names` where a is b, or a subclass of b."""
    classes = {name: getattr(client, name, None) for name in names}
    known = {name: value for name, value in classes.items() if isinstance(value, type)}
    return [(a, b) for a in known for b in known if a != b and issubclass(known[a], known[b])]


# --- store ----------------------------------------------------------------------------------------------------------


def open_once(session: Session, client: ModuleType, path: str, traced: bool = False) -> dict[str, Any]:
    """`open_store`, what the connection is like, and which descriptors of the file stay open when it fails.

    `traced`: also the statements that it has run on the file.
    """
    statements = _trace_statements(client, path) if traced else []
    con: Any = None
    try:
        con = client.open_store(path)
    except BaseException as error:
        left_open = len(_descriptors_of(path))  # while the exception, and with it the frame's variables, is alive
        return {"call": {"raised": session.describe(error)}, "left_open": left_open}
    facts: dict[str, Any] = {"call": {"returned": con}, "is_connection": isinstance(con, sqlite3.Connection)}
    if facts["is_connection"]:
        facts |= {
            "isolation_level": con.isolation_level,
            "autocommit": repr(getattr(con, "autocommit", None)),
            "in_transaction": con.in_transaction,
        }
        session.ask("opened", **facts)
        facts["statements"] = list(statements)
        facts["journal_mode"] = session.attempt(lambda: first_row(con, "PRAGMA journal_mode")[0])
        con.close()
    return facts


def _trace_statements(client: ModuleType, path: str) -> list[str]:
    """From now on, the statements that connections to the file at `path` begin; the list grows."""
    connect = sqlite3.connect
    statements: list[str] = []

    def traced(database: Any, *arguments: Any, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(database, *arguments, **named)
        if os.fsdecode(database).partition("?")[0].endswith(os.path.basename(path)):  # a name, or a URI
            connection.set_trace_callback(statements.append)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]
    for name in [name for name, value in vars(client).items() if value is connect]:
        setattr(client, name, traced)
    return statements


def open_and_touch(session: Session, client: ModuleType, path: str) -> dict[str, Any]:
    """`open_store`, then one change over the connection, and the total as the connection sees it when told to look."""
    session.ask("ready")
    opened = session.attempt(client.open_store, path)
    if "raised" in opened:
        return {"call": opened}
    con = opened["returned"]
    session.ask("opened")
    touched = session.attempt(lambda: con.execute("UPDATE checkpoint SET total = total + 1 WHERE id = 1").rowcount)
    session.ask("touched")
    seen = session.attempt(lambda: first_row(con, "SELECT total FROM checkpoint WHERE id = 1")[0])
    return {"call": {"returned": None}, "touched": touched, "seen": seen}


def first_row(con: sqlite3.Connection, sql: str) -> tuple[Any, ...]:
    """The first row as a plain tuple, whatever row factory the learner's connection has."""
    cursor = con.cursor()
    cursor.row_factory = None
    return tuple(cursor.execute(sql).fetchone())


def _descriptors_of(path: str) -> list[int]:
    try:
        wanted = os.stat(path)
    except OSError:
        return []
    return [
        fd
        for fd, found in _open_descriptors()
        if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino) and stat.S_ISREG(found.st_mode)
    ]


def _open_descriptors() -> Iterator[tuple[int, os.stat_result]]:
    for fd in range(3, 256):
        with contextlib.suppress(OSError):
            yield fd, os.fstat(fd)


# --- atomic_apply ---------------------------------------------------------------------------------------------------


def apply_events(
    session: Session, client: ModuleType, path: str, calls: Sequence[Mapping[str, Any]], before: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Open the store, run the statements `before` on its connection, then `apply_event` once for each of `calls`.

    A call is `{"seq", "delta"}` and may have `"fault"`: `ask` (report what the connection sees, wait for the judge),
    `raise:<name>`, `exit:<status>` or `kill`. Before each call the probe asks `calling`, after it `called`.
    """
    con = client.open_store(path)
    for statement in before:
        con.execute(statement).fetchall()
    reports = []
    for number, call in enumerate(calls):
        session.ask("calling", number=number)
        report = _apply(session, client, con, call)
        reports.append(report)
        session.ask("called", number=number, **report)
    return reports


def _apply(session: Session, client: ModuleType, con: sqlite3.Connection, call: Mapping[str, Any]) -> dict[str, Any]:
    hook = _Hook(session, con, call.get("fault"))
    arguments = () if call.get("fault") is None else (hook,)
    injected = False
    try:
        outcome: dict[str, Any] = {"returned": client.apply_event(con, call["seq"], call["delta"], *arguments)}
    except BaseException as error:
        injected = error is hook.error
        outcome = {"raised": session.describe(error)}
    return {
        "call": outcome,
        "in_transaction": con.in_transaction,
        "hook_calls": hook.calls,
        "same_object": injected,
    }


class _Hook:
    """What is passed as `fault`."""

    def __init__(self, session: Session, con: sqlite3.Connection, plan: str | None) -> None:
        self.session = session
        self.con = con
        self.plan = plan or ""
        self.calls = 0
        name = self.plan.removeprefix("raise:")
        self.error = FAULTS[name](f"made by the judge: {name}") if self.plan.startswith("raise:") else None

    def __call__(self) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        if self.plan.startswith("exit:"):
            os._exit(int(self.plan.removeprefix("exit:")))
        if self.plan == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        self.session.ask(
            "fault",
            inside=self.session.attempt(first_row, self.con, "SELECT last, total FROM checkpoint WHERE id = 1"),
            in_transaction=self.con.in_transaction,
        )


# --- retention ------------------------------------------------------------------------------------------------------


def replays(session: Session, client: ModuleType, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`replay` once for each of `calls`, with the log as it is afterwards.

    Where a call says `spoil`, the list that came back is emptied before the next call, unless it is the log itself.
    """
    reports = []
    for call in calls:
        log = call["log"]
        outcome = session.attempt(client.replay, log, call["cursor"], call["limit"])
        returned = outcome.get("returned")
        if call["spoil"] and isinstance(returned, list) and returned is not log:
            outcome["returned"] = list(returned)
            returned.clear()
        reports.append({"call": outcome, "log": log})
    return reports


# --- ack_after_commit -----------------------------------------------------------------------------------------------


def consume_lines(
    session: Session,
    client: ModuleType,
    path: str,
    lines: Sequence[bytes],
    before: Mapping[str, Sequence[str]] | None = None,
    then: str | None = None,
) -> list[dict[str, Any]]:
    """Open the store, then `consume_line` once for each line; `called` is asked after each.

    `before` has statements to run on the connection before the line of that number. Where `then` names another store,
    the same process opens that one afterwards, and consumes the lines once more; their numbers go on.
    """
    reports: list[dict[str, Any]] = []
    for store in (path,) if then is None else (path, then):
        con = client.open_store(store)
        for line in lines:
            number = len(reports)
            for statement in (before or {}).get(str(number), ()):
                con.execute(statement).fetchall()
            session.ask("calling", number=number)
            report = {"call": session.attempt(client.consume_line, con, line), "in_transaction": con.in_transaction}
            reports.append(report)
            session.ask("called", number=number, **report)
    return reports


# --- reclamation ----------------------------------------------------------------------------------------------------

TURNS = 12  # turns of the event loop after which everything that was scheduled has run


def run_session(
    session: Session,
    client: ModuleType,
    host: str,
    port: int,
    path: str,
    timeout: float | None,
    hook: str | None = None,
    cancellable: bool = False,
    slow_network: int | None = None,
    longest_wait: float | None = None,
    calls: int = 1,
) -> dict[str, Any]:
    """`run_client` in an event loop of its own, and what it leaves behind.

    `hook`: None (no before_ack), `ask` (wait for the judge each time), `leap:<seconds>` (put the clock forward), or
    `raise:<name>`. `cancellable`: the judge's next message cancels the call. `slow_network`: bytes that the transport
    buffers before `drain` waits (None: as usual); the socket's own buffer is as small as the system allows then.
    `longest_wait`: seconds of silence; tell of each wait that is meant to go on for longer. `calls`: how many in a row,
    one after the other; the last, or the first that fails, is reported.
    """
    watched = _Watched(session, client, path)
    _tell_where(session)
    told_waits = _tell_long_waits(session, longest_wait)
    _patch_network(session, watched, slow_network)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(calls):
            facts = asyncio.run(watched.call(host, port, timeout, hook, cancellable))
            if "raised" in facts["call"]:
                break
        gc.collect()
    facts["waited_long"] = bool(told_waits)
    facts["warnings"] = [str(warning.message) for warning in warned if warning.category is ResourceWarning]
    return facts


def run_main(session: Session, client: None, longest_wait: float | None = None) -> NoReturn:
    """`python client.py …`, and what it tells of its waits and of its connections."""
    _tell_where(session)
    _tell_long_waits(session, longest_wait)
    _before_connecting(lambda: session.tell("connecting"))
    run_as_main(session, client)


class _Watched:
    """One call of `run_client` with the descriptors and tasks around it."""

    def __init__(self, session: Session, client: ModuleType, path: str) -> None:
        self.session = session
        self.client = client
        self.path = path
        self.hooked: list[int] = []
        self.attempts = 0
        self.over = False

    async def call(
        self, host: str, port: int, timeout: float | None, hook: str | None, cancellable: bool
    ) -> dict[str, Any]:
        named: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        if hook is not None:
            named["before_ack"] = _BeforeAck(self, hook)
        loop = asyncio.get_running_loop()
        me = asyncio.current_task()
        before = {fd for fd, _ in _open_descriptors()}
        if cancellable:
            loop.add_reader(self.session.fileno(), lambda: self._cancel_later(loop, me))
        try:
            returned = await self.client.run_client(host, port, self.path, **named)
            facts = self._facts(before, {"returned": returned})
        except BaseException as error:
            facts = self._facts(before, {"raised": self.session.describe(error)})
        if cancellable:
            loop.remove_reader(self.session.fileno())
        if me is not None:
            while me.cancelling():
                me.uncancel()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        facts["open_later"] = self._leftovers(before)
        return facts

    def _facts(self, before: set[int], outcome: dict[str, Any]) -> dict[str, Any]:
        """What is open at the very moment at which the call has come back."""
        self.over = True
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        return {
            "call": outcome,
            "open_at_once": self._leftovers(before),
            "tasks": len(tasks),
            "hooked": self.hooked,
            "attempts": self.attempts,
        }

    def _leftovers(self, before: set[int]) -> dict[str, int]:
        mine = set(_descriptors_of(self.path))
        new = [(fd, found) for fd, found in _open_descriptors() if fd not in before]
        sockets = sum(stat.S_ISSOCK(found.st_mode) for _, found in new)
        return {"sockets": sockets, "store": sum(fd in mine for fd, _ in new)}

    def _cancel_later(self, loop: asyncio.AbstractEventLoop, me: asyncio.Task[Any] | None) -> None:
        """Cancel after some turns of the loop, so that the client waits in its read by then."""
        loop.remove_reader(self.session.fileno())
        self.session.receive()

        def turn(left: int) -> None:
            if left:
                loop.call_soon(turn, left - 1)
            elif me is not None and not self.over:  # a client that has come back already is not cancelled any more
                me.cancel()

        turn(TURNS)


class _BeforeAck:
    """What is passed as `before_ack`."""

    def __init__(self, watched: _Watched, plan: str) -> None:
        self.watched = watched
        self.plan, _, self.detail = plan.partition(":")
        self.clock = _Clock(watched.client) if self.plan == "leap" else None

    def __call__(self, seq: int) -> None:
        self.watched.hooked.append(seq)
        if self.plan == "raise":
            raise FAULTS[self.detail](f"made by the judge: {self.detail}")
        if self.clock is not None:
            self.clock.offset += float(self.detail)
        if self.plan == "ask":
            self.watched.session.ask("before_ack", seq=seq)


class _Clock:
    """The process's clocks, which can be put forward: long sessions need not take long."""

    def __init__(self, client: ModuleType) -> None:
        self.offset = 0.0
        for name in ("monotonic", "perf_counter", "time"):
            real = getattr(time, name)
            shifted = self._shifted(real)
            setattr(time, name, shifted)  # the event loop looks here as well
            for known, value in list(vars(client).items()):
                if value is real:
                    setattr(client, known, shifted)

    def _shifted(self, real: Callable[[], float]) -> Callable[[], float]:
        return lambda: real() + self.offset


def _patch_network(session: Session, watched: _Watched, slow_network: int | None) -> None:
    """Watch connection attempts and the moment of closing; where asked, give the socket hardly any room to write."""
    transport_class = asyncio.selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
    close, start = transport_class.close, transport_class.__init__

    def count() -> None:
        watched.attempts += 1

    def told_close(self: Any) -> None:
        if not self.is_closing():
            session.tell("closing")
        close(self)

    def narrow_start(self: Any, loop: Any, sock: Any, *arguments: Any, **named: Any) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        start(self, loop, sock, *arguments, **named)
        if slow_network:
            self.set_write_buffer_limits(high=slow_network)

    _before_connecting(count)
    transport_class.close = told_close
    if slow_network is not None:
        transport_class.__init__ = narrow_start


def _before_connecting(note: Callable[[], None]) -> None:
    """Have `note` called before each attempt to connect."""
    loop_class = asyncio.selector_events.BaseSelectorEventLoop
    connect = loop_class.sock_connect

    async def noted_connect(self: Any, sock: Any, address: Any) -> Any:
        note()
        return await connect(self, sock, address)

    loop_class.sock_connect = noted_connect  # type: ignore[method-assign]


def _tell_long_waits(session: Session, longest: float | None) -> Sequence[float | None]:
    """The waits that are told of, in seconds of silence (None: without end); this list grows.

    Tell `waits` before an event loop waits so long that its silence would be longer than `longest`, and `woken` where
    the network ends such a wait.

    How long a wait is meant to be does not depend on how busy the machine is. Silence is the sum of the waits that the
    network has not ended. Only what nothing else can end is told of: a process with one thread and no alarm.
    """
    told: list[float | None] = []
    if longest is None:
        return told
    real = selectors.DefaultSelector.select
    silences: dict[int, float] = {}

    def select(self: Any, timeout: float | None = None) -> Any:
        silence = silences.get(id(self), 0.0)
        endless = timeout is None
        meant = None if timeout is None else silence + max(0.0, timeout)
        too_long = (meant is None or meant > longest) and timeout != 0 and _is_alone()
        if too_long:
            told.append(meant)
            session.tell("waits")
        events = real(self, timeout)
        silences[id(self)] = 0.0 if events or meant is None else meant
        if too_long and (events or endless):
            session.tell("woken")
        return events

    selectors.DefaultSelector.select = select  # type: ignore[method-assign]
    return told


def _is_alone() -> bool:
    return threading.active_count() == 1 and signal.getitimer(signal.ITIMER_REAL)[0] == 0


def _tell_where(session: Session) -> None:
    """On SIGUSR1, tell at which lines of the learner's file the process waits, the innermost last."""

    def tell(_: int, frame: FrameType | None) -> None:
        running = list(_callers(frame))[::-1]
        stacks = [*_stacks_of_tasks(), running] if _loop_is_idle() else [running]
        own = ([where for where in stack if where[0] == session.client_path] for stack in stacks)
        frames = next((stack for stack in own if stack), [])
        session.tell("where", frames=[(line, function) for _, line, function in frames])

    signal.signal(signal.SIGUSR1, tell)


def _callers(frame: FrameType | None) -> Iterator[tuple[str, int, str]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back


def _loop_is_idle() -> bool:
    """Whether an event loop waits, with each of its tasks at an await."""
    try:
        return asyncio.current_task() is None
    except RuntimeError:  # no loop runs
        return False


def _stacks_of_tasks() -> Iterator[list[tuple[str, int, str]]]:
    """What each task of the running loop awaits, from the outside in."""
    for task in asyncio.all_tasks():
        stack: list[tuple[str, int, str]] = []
        waiting: Any = task.get_coro()
        while waiting is not None:  # a coroutine, or a generator that serves as one
            frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
            stack += list(_callers(frame))[:1]
            waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
        yield stack
