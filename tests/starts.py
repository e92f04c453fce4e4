"""Starting the lab's commands as processes of their own, with a deadline on everything that is waited for."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
DEADLINE = 120.0  # seconds; far more than anything here takes on a busy machine

# Root may write everywhere. This gives that up for the command that follows, where there is something to give up.
AS_ORDINARY_USER = """
import ctypes, os, sys
if os.geteuid() == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
os.execv(sys.argv[1], sys.argv[1:])
"""


def as_ordinary_user(command: list[str]) -> list[str]:
    return [sys.executable, "-c", AS_ORDINARY_USER, *command]


class Started:
    """A running command. Leaving the `with` block ends it and everything that it started."""

    def __init__(self, command: list[str], cwd: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.said = {"stdout": b"", "stderr": b""}

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.family():
            child.kill()
        self.process.kill()
        self.process.communicate()

    def family(self) -> list[psutil.Process]:
        """Every process that this one has started and that is still there."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def line_with(self, text: str, stream: str = "stdout") -> str:
        """The first line that contains `text`, waited for."""
        pipe = getattr(self.process, stream)
        until = time.monotonic() + DEADLINE
        while True:
            for line in self.said[stream].decode().splitlines(keepends=True):
                if text in line and line.endswith("\n"):
                    return line
            ready = select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]
            chunk = os.read(pipe.fileno(), 65536) if ready else b""
            assert chunk, f"no {text!r} in {stream}: {self.said[stream].decode()!r}, {'ended' if ready else 'too late'}"
            self.said[stream] += chunk

    def interrupt(self) -> int:
        """Ctrl-C, and the exit status it leads to."""
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def ended(self) -> int:
        out, err = self.process.communicate(timeout=DEADLINE)
        self.said["stdout"] += out
        self.said["stderr"] += err
        return self.process.returncode

    @property
    def stderr(self) -> str:
        return self.said["stderr"].decode()

    @property
    def stdout(self) -> str:
        return self.said["stdout"].decode()


def surroundings(**changes: str) -> dict[str, str]:
    """The environment of a command that a user types: nothing of the running test suite's own in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PIP_", "JUPYTER"))}
    return {**kept, **changes}


def ran(command: list[str], cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE
    )
