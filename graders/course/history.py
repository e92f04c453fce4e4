"""Every grading of a student, a line each: nbgrader keeps only the last submission, and this keeps the way there.

A line is one JSON object and a line feed, in `.graded/<unit>/<student>.history.jsonl`. A line without its line feed was
being written when the power went out: it is not there for a reader, and the next writer cuts it off.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graders.course.files import Refused, read_plain

SUFFIX = ".history.jsonl"
LONGEST = 10_000_000  # bytes of one student's history


@dataclass(frozen=True)
class Entry:
    """One grading: when, what it was made of, and the judge's points for each step."""

    time: datetime
    made_of: str
    points: Mapping[str, float]

    @property
    def total(self) -> float:
        return math.fsum(self.points.values())


def append(folder: Path, student: str, entry: Entry) -> None:
    """Add an entry, unless the last one is made of the same: then this is the same grading, done again after a kill."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(folder / f"{student}{SUFFIX}", flags, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # two batches at once: one after the other
        whole, feed, torn = file.read().rpartition(b"\n")
        if torn:
            file.truncate(len(whole + feed))
        before = _entries(whole + feed)
        if before and before[-1].made_of == entry.made_of:
            return
        line = asdict(entry) | {"time": entry.time.astimezone(UTC).isoformat(timespec="seconds")}
        file.write(json.dumps(line).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(folder: Path) -> dict[str, list[Entry]]:
    """Everybody's entries in the order in which they were written."""
    found = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []:
        try:
            found[path.name.removesuffix(SUFFIX)] = _entries(read_plain(str(path), LONGEST))
        except (OSError, Refused):
            continue  # one student's history is no reason to show nobody's
    return found


def _entries(data: bytes) -> list[Entry]:
    """What is whole; a line that cannot be read is passed over."""
    found = (_entry(line) for line in data.rpartition(b"\n")[0].split(b"\n"))
    return [entry for entry in found if entry is not None]


def _entry(line: bytes) -> Entry | None:
    try:
        data: Any = json.loads(line)
        time = datetime.fromisoformat(data["time"]).astimezone(UTC)
        points = {str(step): float(number) for step, number in data["points"].items()}
        made_of = data["made_of"]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    sound = isinstance(made_of, str) and all(math.isfinite(number) for number in points.values())
    return Entry(time, made_of, points) if sound else None
