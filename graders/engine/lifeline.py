"""What ties processes to each other on Linux: a child that ends with its parent, a server that inherits orphans."""

from __future__ import annotations

import os
import signal
import sys
from functools import cache
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CHILD_BROKE = (
    113  # the exit status of a child that got past its own ending: the judge's fault, never a learner's status
)


def die_with(parent: int) -> None:
    """From now on this process is killed when its parent ends, which is the process `parent`."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(CHILD_BROKE)


def adopt_orphans() -> None:
    """Processes that descendants leave behind become children of this one, so that it can end them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    libc().prctl(option, value, 0, 0, 0)


@cache  # the fork server has looked it up before its children need it
def libc() -> Any:
    """The C library, for what Python has no call for; `ctypes.get_errno()` says why one failed."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
