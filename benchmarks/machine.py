"""The machine that a benchmark runs on, as far as its figures depend on it."""

from __future__ import annotations

import os
import sys


def say_machine() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    version = "{}.{}.{}".format(*sys.version_info[:3])
    print(f"Python {version}, {cores} cores, load {os.getloadavg()[0]:.1f} (1 min)\n", flush=True)
