"""The judge's side of child processes: starting them, talking to them, and knowing for certain how they ended.

A `Workshop` owns the fork server and a folder for everything that children write; closing it ends every child and
removes every file. Each wait here has a deadline and names what it waited for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from graders.engine import sandbox, wire
from graders.engine.forkserver import SOCKET, START
from graders.engine.store import open_plain

Method = Literal["fork", "spawn"]
Detail = Literal["line", "instruction"]
ROOT = Path(__file__).resolve().parents[2]
PREFIX = "recovery-lab-"  # of a workshop's folder
FRESH = 60.0  # seconds in which a new folder may not be locked yet
PRELOAD = (
    *("argparse", "asyncio", "collections", "contextlib", "dataclasses", "encodings.idna", "enum", "functools"),
    *("gettext", "json", "logging", "os", "pathlib", "random", "re", "shutil", "signal", "sqlite3", "struct", "time"),
    *("traceback", "typing", "graders.engine.child", "graders.engine.probes"),
)

# Far above what any right program needs, far below what could hurt the machine.
LIMITS = {
    "RLIMIT_CPU": 20,  # seconds
    "RLIMIT_AS": 2 << 30,  # bytes of address space
    "RLIMIT_FSIZE": 32 << 20,  # bytes a file may grow to, standard output included
    "RLIMIT_NOFILE": 256,
    "RLIMIT_CORE": 0,
}
PATIENCE = 15.0  # seconds a child may take in all, unless a rule says otherwise
LONGEST_LINE = 8 << 20  # bytes of one message; more is a child that floods the judge
LAST_REPORTS = (b'{"event": "finished"', b'{"event": "loaded"')
SHOWN_OUTPUT = 2000  # bytes of a child's standard error that are read back


class JudgeBroke(Exception):
    """Something of the judge's own failed: no verdict about the learner can rest on it."""


@dataclass(frozen=True)
class Stops:
    """What a child does at the stops of the learner's file: wait for the judge, or end itself at the stop `at`.

    What a stop is: `graders.engine.stops`. `detail` says how fine they are.
    """

    mode: Literal["pause", "kill"]
    at: tuple[int, str, int] | None = None
    detail: Detail = "line"

    def message(self) -> dict[str, Any]:
        return {"mode": self.mode, "at": self.at, "detail": self.detail}


@dataclass(frozen=True)
class Ending:
    """How a process ended: `signal` is 0 unless one ended it, `status` the exit status otherwise."""

    status: int
    signal: int = 0

    def __str__(self) -> str:
        if self.signal:
            return f"ended by {signal.Signals(self.signal).name}"
        return f"exit status {self.status}"


KILLED = Ending(0, signal.SIGKILL)


class Workshop:
    """The fork server and the folder in which children work. Use as a context manager.

    `shut_in`: put both into a sandbox, which has to be there. `strict`: nothing that the programs say of themselves is
    believed where a look from outside can tell, so that explorations also look from there.
    """

    def __init__(
        self,
        method: Method | None = None,
        preload: Sequence[str] = (),
        *,
        shut_in: bool = False,
        strict: bool = False,
    ) -> None:
        self.method: Method = method or ("fork" if hasattr(os, "fork") else "spawn")
        self.preload = (*PRELOAD, *preload)
        self.shut_in = shut_in
        self.strict = strict
        self.walls: sandbox.Walls | None = None
        self.lock = threading.Lock()
        self.folders = 0

    def __enter__(self) -> Workshop:
        with contextlib.ExitStack() as stack:
            shared = "/dev/shm"  # memory: a store's fsync costs nothing there, and no verdict depends on it
            base = shared if os.path.isdir(shared) and os.access(shared, os.W_OK) else None
            _sweep(base or tempfile.gettempdir())
            self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
            stack.callback(_remove, self.folder)
            stack.callback(os.close, _locked(self.folder))
            self.code = self.folder / "code"  # what children have compiled
            self.code.mkdir()
            self._start_server(stack)
            self._closing = stack.pop_all()  # what interrupts this leaves nothing behind
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _start_server(self, stack: contextlib.ExitStack) -> None:
        user = ""
        if self.shut_in:
            self.walls = sandbox.Walls(self.folder, [ROOT / "graders"])
            # The workshop's own folder stays the judge's: who owns it can put links where the judge expects folders.
            self.folder.chmod(0o711)
            self.walls.hand_over(self.code)
            user = "" if self.walls.user is None else str(self.walls.user)
        self.requests, theirs = socket.socketpair()
        code = (
            "import sys; sys.path.insert(0, sys.argv[3]); from graders.engine import forkserver;"
            " forkserver.main(int(sys.argv[1]), *sys.argv[2:6], sys.argv[6:])"
        )
        told = [str(theirs.fileno()), self.method, str(ROOT), str(self.folder), user, *self.preload]
        command = [sys.executable, "-I", "-c", code, *told]
        with theirs:
            stack.callback(self.requests.close)
            self.server = subprocess.Popen(
                self.walls.command(command) if self.walls else command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(self._end_server)
        if self.walls:
            warden = sandbox.Warden(self.server.pid, self.folder, _end)
            warden.start()
            stack.callback(warden.close)

    def _end_server(self) -> None:
        self.requests.close()
        try:
            self.server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()

    def abandon(self) -> None:
        """End every child now; whoever waits for one hears that the judge broke."""
        with contextlib.suppress(OSError):  # the server has gone already
            self.requests.shutdown(socket.SHUT_RDWR)

    def new_folder(self) -> Path:
        """An empty folder of its own, below the workshop's."""
        with self.lock:
            self.folders += 1
            folder = self.folder / str(self.folders)
        folder.mkdir()
        return folder

    def start(self, job: Job, before: Callable[[Child], None] | None = None) -> Child:
        """Start a child on `job`; `before` comes before it is told what to do. Raises JudgeBroke where no child can be
        had.
        """
        if self.walls:
            for folder in job.folders(self.folder):
                self.walls.hand_over(folder)
        ours, control = socket.socketpair()
        status, theirs = socket.socketpair()
        try:
            self._ask(START, control, theirs)
        except ServerGone:
            ours.close()
            status.close()
            raise
        finally:
            control.close()
            theirs.close()
        child = Child(job, ours, status)
        if before is not None:
            before(child)
        child.send(job.message(sandbox.LIMITS if self.walls else {}))
        return child

    def tcp_socket(self) -> socket.socket:
        """A new TCP socket of the network that children see."""
        if not self.walls:
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._ask(SOCKET, theirs)
            theirs.close()
            ours.settimeout(PATIENCE)
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        if not fds:
            raise ServerGone
        return socket.socket(fileno=fds[0])

    def _ask(self, request: bytes, *handed_over: socket.socket) -> None:
        try:
            with self.lock:
                socket.send_fds(self.requests, [request], [each.fileno() for each in handed_over])
        except OSError as error:
            raise ServerGone from error


def _locked(folder: str | Path) -> int:
    """A descriptor of the folder that says, as long as it is open, that the folder is in use. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _sweep(base: str) -> None:
    """Remove the folders of judges that were killed: nothing of theirs could do it any more."""
    for entry in os.scandir(base):
        with contextlib.suppress(OSError):  # it is in use, or gone
            found = entry.stat(follow_symlinks=False)
            ours = entry.name.startswith(PREFIX) and found.st_uid == os.geteuid() and entry.is_dir()
            if ours and time.time() - found.st_mtime > FRESH:
                descriptor = _locked(entry.path)
                _remove(Path(entry.path))
                os.close(descriptor)


def _remove(folder: Path) -> None:
    """Whatever children have made of it."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # they have locked a folder of theirs
        for place, names, _ in os.walk(folder):
            for path in (os.path.join(place, name) for name in names):
                if not os.path.islink(path):  # what a link names is somebody else's
                    os.chmod(path, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class ServerGone(Exception):
    """The fork server has ended while children ran. Nothing of the judge's ends it: a child has killed it, or has used
    up the machine."""


class GivenUp(Exception):
    """Nobody wants to know any more what this judgement would have come to."""


class Crew:
    """The children of one judgement, which can be given up as a whole."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.lock = threading.Lock()
        self.children: set[Child] = set()
        self.given_up = False

    def start(self, job: Job, before: Callable[[Child], None] | None = None) -> Child:
        """Start a child on `job`. Raises GivenUp once the judgement has been."""
        child = self.workshop.start(job, before)
        with self.lock:
            self.children = {known for known in self.children if not known.closed} | {child}
            given_up = self.given_up
        if given_up:
            child.__exit__()
            raise GivenUp
        return child

    def give_up(self) -> None:
        """End every child, and start no other."""
        with self.lock:
            self.given_up = True
            children = list(self.children)
        for child in children:
            child.kill()

    def new_folder(self) -> Path:
        return self.workshop.new_folder()


@dataclass(frozen=True)
class Job:
    """What a child is to do: the file to load, the probe to run on it, and how it may be stopped."""

    folder: Path
    probe: str
    file: str = "client.py"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    argv: Sequence[str] = ()
    load: bool = True
    stops: Stops | None = None
    output: str = "child"
    patience: float = field(default_factory=lambda: PATIENCE)
    limits: Mapping[str, int] = field(default_factory=dict)
    code_cache: str | None = None

    def folders(self, below: Path) -> set[Path]:
        """The folders in which the child will work: its own, and those of all files that it is told about."""
        told = [value for value in (*self.argv, *self.arguments.values()) if isinstance(value, str)]
        paths = [Path(value) for value in told if value.startswith(f"{below}/")]
        return {self.folder} | {path.parent for path in paths if path.parent != below and path.parent.is_dir()}

    def message(self, limits: Mapping[str, int]) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "file": self.file,
            "probe": self.probe,
            "arguments": dict(self.arguments),
            "argv": list(self.argv),
            "load": self.load,
            "code_cache": self.code_cache,
            "stops": None if self.stops is None else self.stops.message(),
            "output": self.output,
            "limits": {**LIMITS, **limits, **self.limits},
            "environment": bare_environment(self.folder),
        }


def bare_environment(folder: Path) -> dict[str, str]:
    """All that a child's environment holds: nothing of the judge's own."""
    return {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }


class Child:
    """A running child. `messages` yields what it reports; afterwards `ending` tells how the process ended."""

    def __init__(self, job: Job, control: socket.socket, status: socket.socket) -> None:
        self.job = job
        self.control = control
        self.status = status
        self._process: int | None = None  # a descriptor of it, where the system has such
        self.deadline = time.monotonic() + job.patience
        self.timed_out = False
        self.flooded = False
        self._buffer = b""
        self._status_text = b""
        self._ending: Ending | None = None
        self._status_lock = threading.Lock()
        self._control_open = True

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.kill()
            self.ending()
        finally:
            self.control.close()
            self.status.close()
            if self._process is not None:
                os.close(self._process)

    @property
    def out_of_time(self) -> bool:
        return time.monotonic() > self.deadline

    @property
    def closed(self) -> bool:
        """Whether all that the child will ever report has been read."""
        return not self._control_open and b"\n" not in self._buffer

    @property
    def pid(self) -> int:
        """The process's number on this side of the sandbox; -1 where it has ended."""
        self._wait_for_start()
        if self._process is None:
            return int(self._status_text.split(b"\n")[0])
        facts = Path(f"/proc/self/fdinfo/{self._process}").read_text()
        return int(next(line for line in facts.splitlines() if line.startswith("Pid:")).split()[1])

    def _wait_for_start(self) -> None:
        while b"\n" not in self._status_text:
            if not select.select([self.status], [], [], PATIENCE)[0]:
                raise JudgeBroke(f"waited {PATIENCE:g} s for the fork server to start a child")
            self._read_status()

    def signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        self._wait_for_start()
        with contextlib.suppress(ProcessLookupError):
            if self._process is None:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(self._process, number)

    def send(self, message: Mapping[str, Any]) -> None:
        """Answer the child. One that has died meanwhile is noticed when its messages end."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.control.sendall(wire.dumps(dict(message)))

    def go_on(self) -> None:
        """Let a child go on that has asked."""
        self.send({})

    def messages(self) -> Iterator[dict[str, Any]]:
        """What the child reports, until it ends or its time is up (`timed_out` is set then, and it is killed)."""
        while (message := self.next_message()) is not None:
            yield message

    def next_message(self) -> dict[str, Any] | None:
        """The next report, or None after the last."""
        while b"\n" not in self._buffer:
            if not self._fill(self.deadline):
                return None
        return self._take()

    def waiting_message(self) -> dict[str, Any] | None:
        """A report that is here already, or None; never waits."""
        while b"\n" not in self._buffer:
            if not self._control_open or not select.select([self.control], [], [], 0)[0] or not self._receive():
                return None
        return self._take()

    def arrived(self) -> Iterator[dict[str, Any]]:
        """The reports that are here. Call when `control` can be read, or the time is up: the child is killed then."""
        if not self.out_of_time:
            self._receive()
        elif not self.timed_out:
            self.timed_out = True
            self.kill()
        while b"\n" in self._buffer and (message := self._take()) is not None:
            yield message

    def over(self) -> bool:
        """Whether the child has made its last report or has ended; what it said before stays to be read."""
        while self._control_open and select.select([self.control], [], [], 0)[0] and self._receive():
            pass
        return self.ended() or any(report in self._buffer for report in LAST_REPORTS)

    def watched(self) -> list[Any]:
        """What to wait on for news of the child: its reports, and its end. A child that has become another program
        reports nothing more and still runs."""
        pipes: list[Any] = [] if self._ending is not None else [self.status]
        return [*pipes, self.control] if self._control_open else pipes

    def finishes_within(self, seconds: float) -> bool:
        """Wait for `seconds`, or less where the child makes its last report before."""
        until = time.monotonic() + seconds
        while not self.over():
            left = until - time.monotonic()
            if left <= 0:
                return False
            select.select(self.watched(), [], [], left)
        return True

    def _take(self) -> dict[str, Any] | None:
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return wire.loads(line)
        except ValueError:
            self.flooded = True  # only a child that writes to the judge's socket itself does this
            self.kill()
            return None

    def _fill(self, deadline: float) -> bool:
        left = deadline - time.monotonic()
        if not self._control_open:
            return False
        if left <= 0 or not select.select([self.control], [], [], left)[0]:
            self.timed_out = True
            self.kill()
            return False
        return self._receive()

    def _receive(self) -> bool:
        try:
            data = self.control.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            self._control_open = False
            return False
        self._buffer += data
        if len(self._buffer) > LONGEST_LINE:
            self.flooded = True
            self.kill()
            return False
        return True

    def ending(self) -> Ending:
        """Wait for the end of the process, ending it when its time is up."""
        while self._ending is None:
            left = max(0.0, self.deadline - time.monotonic())
            if not select.select([self.status], [], [], left)[0]:
                self.timed_out = True
                self.kill()
                if not select.select([self.status], [], [], PATIENCE)[0]:
                    raise JudgeBroke(f"waited {PATIENCE:g} s for the end of a child that was killed")
            self._read_status()
        return self._ending

    def ended(self) -> bool:
        """Whether the process has ended by now; never waits."""
        self._read_status()
        return self._ending is not None

    def _read_status(self) -> None:
        """Take what the fork server has written about this child, if anything. Several threads may ask."""
        with self._status_lock:
            if self._ending is not None or not select.select([self.status], [], [], 0)[0]:
                return
            try:
                data, fds, _, _ = socket.recv_fds(self.status, 64, 1)
            except ConnectionResetError:
                raise ServerGone from None
            if not data:
                raise ServerGone
            if fds:
                self._process = fds[0]
            self._status_text += data
            lines = self._status_text.split(b"\n")
            if len(lines) > 2:
                code = os.waitstatus_to_exitcode(int(lines[1]))
                self._ending = Ending(code) if code >= 0 else Ending(0, -code)

    def kill(self) -> None:
        """SIGKILL, if it still runs. The server reaps it, so the pid cannot have become another's meanwhile."""
        if not self.ended():
            self.signal(signal.SIGKILL)

    def standard_error(self) -> str:
        """The end of what it wrote to standard error."""
        return read_tail(self.job.folder / f"{self.job.output}.err")


def read_tail(path: Path) -> str:
    """The end of what a child has written. A link is not followed: what it names may be nobody else's to read."""
    try:
        with open(open_plain(path), "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - SHOWN_OUTPUT))
            return file.read(SHOWN_OUTPUT).decode("utf-8", "replace")
    except OSError:
        return ""


def is_asleep(pid: int) -> bool | None:
    """Whether the process sleeps (waits for something) rather than runs; None where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[0] in "SD"
