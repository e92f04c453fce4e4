"""What runs inside a child process, around the learner's program.

The child is told what to do and reports what happened; it holds no expected value. A job names a probe, a function of
a unit that drives the learner's code: `probe(session, client, **arguments)` gets the session that talks to the judge
and the learner's module, and what it returns is reported. Reports travel over the control socket, never over standard
output, which is the learner's.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import marshal
import os
import resource
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from graders.engine import lifeline, stops, wire

DEEPEST_TRACE = 8
LONGEST_MESSAGE = 300
REPORTED = 0  # exit status of a child that has reported what its probe returned


class Session:
    """The child's end of the conversation with the judge. Calls may come from any of the child's threads."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._replies = control.makefile("rb")
        self._lock = threading.RLock()
        self.client_path = ""
        self.code_cache: str | None = None

    def fileno(self) -> int:
        return self._control.fileno()

    def tell(self, event: str, **data: Any) -> None:
        """Report something and go on."""
        with self._lock:
            self._control.sendall(wire.dumps({"event": event, **data}))

    def ask(self, event: str, **data: Any) -> dict[str, Any]:
        """Report something and wait until the judge has looked."""
        with self._lock:
            self.tell(event, ask=True, **data)
            return self.receive()

    def receive(self) -> dict[str, Any]:
        line = self._replies.readline()
        if not line:
            os.kill(os.getpid(), signal.SIGKILL)  # the judge has gone; nobody wants the rest
        return wire.loads(line)

    def attempt(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> dict[str, Any]:
        """Call, and say what came of it: `{"returned": value}` or `{"raised": description}`."""
        try:
            value = function(*arguments, **named)
        except BaseException as error:
            return {"raised": self.describe(error)}
        return {"returned": value}

    def describe(self, error: BaseException) -> dict[str, Any]:
        """An exception as data: what it is, what it says, and where in the learner's file it came from."""
        client = sys.modules.get("client")
        public = vars(client) if client is not None else {}
        return {
            "type": type(error).__name__,
            "bases": [f"{base.__module__}.{base.__qualname__}" for base in type(error).__mro__],
            "is": [name for name, value in public.items() if _is_exception(value) and isinstance(error, value)],
            "message": _message(error),
            "where": self._frames(error),
        }

    def _frames(self, error: BaseException) -> list[tuple[int, str]]:
        frames = []
        if isinstance(error, SyntaxError) and error.filename == self.client_path and error.lineno:
            frames.append((error.lineno, "<module>"))
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            if code.co_filename == self.client_path:
                frames.append((trace.tb_lineno, code.co_name))
            trace = trace.tb_next
        return frames[-DEEPEST_TRACE:]


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and BaseException in value.__mro__


def _message(error: BaseException) -> str:
    try:
        return str(error)[:LONGEST_MESSAGE]
    except Exception as broken:
        return f"(its message cannot be read: {type(broken).__name__})"


def spawned() -> NoReturn:
    """Entry of a child that was started as a new interpreter: descriptor, project root, server's pid."""
    fd, root, server = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    lifeline.die_with(server)
    main(fd, root)


def main(control_fd: int, root: str) -> NoReturn:
    """Take one job from the judge, do it, report, and end. Never returns."""
    os.set_inheritable(control_fd, False)
    session = Session(socket.socket(fileno=control_fd))
    job = session.receive()
    probe = _find_probe(job["probe"])
    _settle_in(job, root)
    session.client_path = os.path.join(job["folder"], job["file"])
    session.code_cache = job["code_cache"]
    if (wanted := job["stops"]) is not None:
        stops.watch(session, session.client_path, wanted["mode"], wanted["detail"], wanted["at"])
    _run(session, probe, job)


def _find_probe(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]


def _settle_in(job: Mapping[str, Any], root: str) -> None:
    """Own folder, own output files, a bare environment and limits: nothing of the judge's is in reach by accident."""
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    for fd, name in ((1, job["output"] + ".out"), (2, job["output"] + ".err")):
        opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.dup2(opened, fd)
        os.close(opened)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for name, amount in job["limits"].items():
        kind = getattr(resource, name, None)
        if kind is not None:
            with contextlib.suppress(ValueError, OSError):  # a stricter limit is in force already
                resource.setrlimit(kind, (amount, amount))
    sys.path[:] = [job["folder"]] + [entry for entry in sys.path if entry not in ("", root)]
    sys.argv = [job["file"], *job["argv"]]


def _run(session: Session, probe: Callable[..., Any], job: Mapping[str, Any]) -> NoReturn:
    try:
        client = None
        if job["load"]:
            client = types.ModuleType("client")
            loaded = session.attempt(load, session, client)
            if "raised" in loaded:
                session.tell("loaded", **loaded)
                os._exit(REPORTED)
        result = session.attempt(probe, session, client, **job["arguments"])
        _flush()
        session.tell("finished", **result)
    except BaseException as error:
        session.tell("broke", error=f"{type(error).__name__}: {error}")
        raise
    os._exit(REPORTED)


def load(session: Session, module: types.ModuleType) -> None:
    """Run the learner's file as `module`, the way an import would."""
    module.__file__ = session.client_path
    sys.modules[module.__name__] = module
    exec(_code(session.client_path, session.code_cache), vars(module))


def _code(path: str, cache: str | None) -> types.CodeType:
    """The file's code. One program lives hundreds of lives; the first that compiles it leaves the code in `cache`."""
    if cache is not None and os.path.exists(cache):
        with open(cache, "rb") as kept:
            return _standing_in(path, marshal.loads(kept.read()))
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    if cache is not None:
        _keep(code, cache)
    return code


def _keep(code: types.CodeType, cache: str) -> None:
    part = f"{cache}.{os.getpid()}"
    with open(part, "wb") as file:
        file.write(marshal.dumps(code))
    os.replace(part, cache)  # whole or not at all: the process may be ended here too


def _standing_in(path: str, code: types.CodeType) -> types.CodeType:
    """The same code, as compiled from the file at `path`: each life has a copy of the file in a folder of its own."""
    constants = [_standing_in(path, value) if isinstance(value, types.CodeType) else value for value in code.co_consts]
    return code.replace(co_filename=path, co_consts=tuple(constants))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def run_as_main(session: Session, client: None) -> NoReturn:
    """A probe: the file as `python client.py …` runs it, up to the process's own end."""
    module = types.ModuleType("__main__")
    try:
        load(session, module)
    except SystemExit as ending:
        session.tell("unwound", by="SystemExit")
        status = _exit_status(ending)
    except BaseException as error:
        import traceback

        session.tell("unwound", by=type(error).__name__, raised=session.describe(error))
        traceback.print_exc()
        status = 1
    else:
        session.tell("unwound", by="end of file")
        status = 0
    atexit._run_exitfuncs()
    _flush()
    os._exit(status)


def _exit_status(ending: SystemExit) -> int:
    if ending.code is None:
        return 0
    if isinstance(ending.code, int):
        return ending.code & 0xFF
    print(ending.code, file=sys.stderr)
    return 1
