"""A process that has the imports already and starts the children that run learner code.

The judge asks by sending one byte and descriptors over a Unix socket. `START` comes with the child's control socket and
a socket for what becomes of the child: into that the server writes the child's pid, with a descriptor of the process
where the system has such, and later its wait status, one decimal number a line each. `SOCKET` comes with a socket over
which a new TCP socket is handed back: where the server is shut in, that belongs to the network inside, and works
outside all the same. When the judge goes away the server kills what is left, removes the children's folder, and ends.

`fork` costs a few milliseconds a child; `spawn` starts a new interpreter each time, for comparison and for systems on
which forking is not safe. What runs in the child is the same: `graders.engine.child.main`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence

from graders.engine import lifeline

CONTROL_FD = 3
START, SOCKET = b"+", b"s"


def main(request_fd: int, method: str, root: str, folder: str, user: str, preload: Sequence[str]) -> None:
    """Serve until the judge closes its end of `request_fd`, or dies.

    A module of `preload` may define `warm_up()`. It does once what most children will do, so that the caches that
    Python fills on the way (compiled patterns, specialised bytecode) are there already when children are forked. It
    must leave no thread and no descriptor. Children become `user`, a number; empty: they stay what the server is.
    """
    for name in preload:
        module = importlib.import_module(name)
        if method == "fork" and hasattr(module, "warm_up"):
            module.warm_up()
    lifeline.adopt_orphans()
    gc.collect()
    gc.freeze()  # what the imports made is shared with every child; the collector need not touch it
    _Server(socket.socket(fileno=request_fd), method, root, int(user) if user else None).serve()
    shutil.rmtree(folder, ignore_errors=True)


class _Server:
    def __init__(self, requests: socket.socket, method: str, root: str, user: int | None) -> None:
        self.requests = requests
        self.method = method
        self.root = root
        self.user = user
        self.children: dict[int, socket.socket] = {}  # pid to the socket that wants its status
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(self.wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the judge, which then closes the socket
        signal.set_wakeup_fd(self.wake_write)

    def serve(self) -> None:
        try:
            while True:
                requests = self.requests.fileno()
                ready, _, _ = select.select([requests, self.wake_read], [], [])
                if self.wake_read in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wake_read, 4096)
                    self.reap()
                if requests in ready and not self.accept_request():
                    return
        finally:
            self.kill_everything()

    def accept_request(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self.requests, 1, 2)
        if not data:
            return False
        if data == SOCKET:
            with socket.socket(fileno=fds[0]) as reply, socket.socket() as made:
                socket.send_fds(reply, [data], [made.fileno()])
            return True
        control, status = fds[0], socket.socket(fileno=fds[1])
        pid = self.fork(control) if self.method == "fork" else self.spawn(control)
        self.children[pid] = status
        os.close(control)
        _introduce(status, pid)
        return True

    def fork(self, control: int) -> int:
        server = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.setsid()
            if self.user is not None:
                os.setgroups([])
                os.setresgid(self.user, self.user, self.user)
                os.setresuid(self.user, self.user, self.user)
            lifeline.die_with(server)  # after that: a change of user would undo it
            os.dup2(control, CONTROL_FD)
            os.closerange(CONTROL_FD + 1, os.sysconf("SC_OPEN_MAX"))
            from graders.engine import child

            child.main(CONTROL_FD, self.root)
        except BaseException:
            traceback.print_exc()  # into the child's own standard error, once it has one
        finally:
            os._exit(lifeline.CHILD_BROKE)

    def spawn(self, control: int) -> int:
        code = "import sys; sys.path.insert(0, sys.argv[2]); from graders.engine import child; child.spawned()"
        arguments = [sys.executable, "-I", "-c", code, str(control), self.root, str(os.getpid())]
        child = subprocess.Popen(
            arguments,
            pass_fds=[control],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
        )
        child.returncode = 0  # this server reaps its children itself; subprocess must not do it behind its back
        return child.pid

    def reap(self) -> None:
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            status = self.children.pop(pid, None)
            if status is None:
                continue  # an orphan of a child's, ended below or by itself
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            self.kill_orphans()
            _write(status, f"{wait_status}\n")
            status.close()

    def kill_orphans(self) -> None:
        """What a child left running under another session: as subreaper this process has become its parent."""
        for pid in _children_of_this_process():
            if pid not in self.children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def kill_everything(self) -> None:
        for pid in list(self.children):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while self.children:
                pid, _ = os.waitpid(-1, 0)
                self.children.pop(pid, None)
                self.kill_orphans()
        self.kill_orphans()


def _introduce(status: socket.socket, pid: int) -> None:
    """Say which process the child is. Where the server is shut in its numbers mean nothing outside; a descriptor of the
    process does everywhere, and still means the same one when the number is another's.
    """
    if not hasattr(os, "pidfd_open"):
        _write(status, f"{pid}\n")
        return
    process = os.pidfd_open(pid)
    with contextlib.suppress(BrokenPipeError):
        socket.send_fds(status, [b"%d\n" % pid], [process])
    os.close(process)


def _write(status: socket.socket, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the judge no longer wants to know
        status.sendall(text.encode("ascii"))


def _children_of_this_process() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as listing:
            return [int(pid) for pid in listing.read().split()]
    except OSError:
        return []  # not Linux: process groups are all there is
