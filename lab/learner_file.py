"""The learner's file on disk: reading it, with a clear word about what is wrong, and changing it without any loss.

Beside the file, the folder `.recovery-lab` remembers what the notebooks last wrote into each section, so that a section
edited by hand is recognised. Losing that folder loses no work: then every section counts as edited by hand.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: two kernels that write in the same instant are not kept apart there
    fcntl = None  # type: ignore[assignment]

MEMORY = ".recovery-lab"
SIZE_LIMIT = 1_000_000  # bytes; the reference has less than 10_000
LOCK_WAIT = 10.0  # seconds; a write takes milliseconds


class FileTrouble(Exception):
    """The learner's file cannot be read or written; the message is one line for the learner."""


def read(path: Path) -> str:
    """The file's text with its own line ends, "" where there is none yet."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise FileTrouble(f"{path.name} is {_kind(info.st_mode)}, not a file: rename it and run this cell again")
        if info.st_size > SIZE_LIMIT:
            raise FileTrouble(f"{path.name} has {info.st_size} bytes, more than {SIZE_LIMIT}: that is no program")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise FileTrouble(f"{path.name} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise FileTrouble(f"{path.name} cannot be read: {error.strerror}") from None


def _kind(mode: int) -> str:
    return "a directory" if stat.S_ISDIR(mode) else "something special (a pipe, a socket or a device)"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else changes the file meanwhile; two notebooks share it."""
    try:
        path.with_name(MEMORY).mkdir(exist_ok=True)
        with open(path.with_name(MEMORY) / "lock", "a") as lock:
            _take(lock.fileno(), path.name)
            yield
    except OSError as error:
        raise FileTrouble(f"{path.name} cannot be written: {error.strerror} ({error.filename})") from None


def _take(lock: int, name: str) -> None:
    """Take the lock; closing the descriptor, or the end of this process, gives it back."""
    deadline = time.monotonic() + LOCK_WAIT
    while fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise FileTrouble(f"{name} was locked by another notebook for {LOCK_WAIT:g} seconds") from None
            time.sleep(0.02)  # flock has no waiting with a deadline


def write(path: Path, text: str) -> None:
    """Replace the file in one step: a reader sees the old text or the new one, never a part."""
    target = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(name, stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def back_up(path: Path, step: str, text: str) -> str:
    """Keep `text`, a section that is about to be replaced, under a new name; returns the name."""
    for number in range(1, 10_000):
        backup = path.with_name(f"{path.stem}.{step}.{number}.bak{path.suffix}")
        with contextlib.suppress(FileExistsError), open(backup, "x", encoding="utf-8") as file:
            file.write(text + "\n")
            return backup.name
    raise FileTrouble(f"there are 9999 backups of {step} already: clear some away")


def fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def remembered(path: Path) -> dict[str, str]:
    """Step to fingerprint of what a notebook last wrote there; {} where the memory is missing or damaged."""
    return _memory(path).get(path.name, {})


def remember(path: Path, sections: Mapping[str, str]) -> None:
    """Note what was just written: step to section text. Called with the lock held."""
    noted = _memory(path)
    noted[path.name] = noted.get(path.name, {}) | {step: fingerprint(text) for step, text in sections.items()}
    write(path.with_name(MEMORY) / "sections.json", json.dumps(noted, indent=1, sort_keys=True) + "\n")


def _memory(path: Path) -> dict[str, dict[str, str]]:
    """File name to step to fingerprint."""
    try:
        stored = json.loads((path.with_name(MEMORY) / "sections.json").read_text("utf-8"))
        return {name: {str(step): str(mark) for step, mark in marks.items()} for name, marks in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
