"""Watching a process from outside, at every one of its system calls.

What a program does to the world it does through system calls. So a process that is held at each of them cannot hide a
state of the world from whoever looks then, whatever it does to what is around it in its own process. Nothing in the
process takes part in this. Linux only, and only where the system allows it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import threading
from functools import cache
from typing import Any

from graders.engine.lifeline import libc

# From <linux/ptrace.h> and <linux/wait.h>; the numbers are the same on every architecture.
SYSCALL, SEIZE, INTERRUPT = 24, 0x4206, 0x4207
OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10  # mark stops at system calls; follow fork, vfork and clone; tell of exec
AT_CALL = signal.SIGTRAP | 0x80
OWN_THREADS_TRACEES = 0x40000000 | 0x20000000  # __WALL, __WNOTHREAD: no other thread's children
HELD, GO_ON = b"h", b"g"


class Forbidden(Exception):
    """The system does not let one process watch another."""


class Witness(threading.Thread):
    """Holds the process `pid` and all that it starts at each system call. Use as a context manager.

    `news` can be read when the process is held, and `go_on` lets it go on. Raises Forbidden.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(name="witness", daemon=True)
        self.pid = pid
        self.news, self._theirs = socket.socketpair()
        self._seized = threading.Event()
        self._refused: OSError | None = None
        self.start()
        self._seized.wait()
        if self._refused is not None:
            self.__exit__()
            raise Forbidden(str(self._refused))

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *_: object) -> None:
        """The process has ended, or was killed."""
        self.let_go()
        self.join()
        self._theirs.close()

    def go_on(self) -> None:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            self.news.recv(1)
            self.news.sendall(GO_ON)

    def let_go(self) -> None:
        """What the process does from here on it does without being held."""
        self.news.close()

    def run(self) -> None:
        try:
            _ptrace(SEIZE, self.pid, OPTIONS)
            _ptrace(INTERRUPT, self.pid, 0)
        except OSError as error:
            self._refused = error
        self._seized.set()
        with contextlib.suppress(ChildProcessError):
            while self._refused is None:
                pid, status = os.waitpid(-1, OWN_THREADS_TRACEES)
                if os.WIFSTOPPED(status):
                    self._stopped(pid, os.WSTOPSIG(status), status >> 16)
                elif pid == self.pid:
                    return  # what else it has started goes on alone when this thread ends, up to its own end

    def _stopped(self, pid: int, number: int, event: int) -> None:
        if number == AT_CALL:
            with contextlib.suppress(OSError):
                self._theirs.sendall(HELD)
                self._theirs.recv(1)
        with contextlib.suppress(ProcessLookupError):  # killed while it was held
            _ptrace(SYSCALL, pid, 0 if event or number == AT_CALL else number)


def _ptrace(request: int, pid: int, data: int) -> None:
    if _call()(request, pid, None, data) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@cache
def _call() -> Any:
    ptrace = libc().ptrace
    ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    ptrace.restype = ctypes.c_long
    return ptrace
