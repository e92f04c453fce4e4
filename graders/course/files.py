"""Files in folders that somebody else has filled: never followed elsewhere, never waited for, never endless."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

KINDS = (
    (stat.S_ISLNK, "a link to somewhere else"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)
SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Refused(Exception):
    """It was not read; the message says why, as the end of a sentence that begins with the file's name."""


def kind_of(mode: int) -> str:
    """What something is that is no plain file, or "" for a plain file."""
    if stat.S_ISREG(mode):
        return ""
    return next((words for is_it, words in KINDS if is_it(mode)), "no file at all")


def open_folder(path: Path) -> int:
    """A descriptor of the folder itself, which no exchange of names can turn into another one."""
    try:
        return os.open(path, SAFELY | os.O_DIRECTORY)
    except OSError as error:
        if path.is_symlink():
            raise Refused("is a link to somewhere else, which is not followed") from None
        raise Refused(f"cannot be opened as a folder: {error.strerror}") from None


def read_plain(name: str, most: int, folder: int | None = None) -> bytes:
    """The content of a plain file of at most `most` bytes. FileNotFoundError where there is nothing of that name."""
    try:
        _expect_plain(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        handle = os.open(name, SAFELY, dir_fd=folder)
        with open(handle, "rb") as file:
            _expect_plain(os.fstat(handle).st_mode)  # it may have been exchanged meanwhile
            data = file.read(most + 1) or b""
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror}") from None
    if len(data) > most:
        raise Refused(f"has more than {most // 1_000_000 or 1} MB, which nobody writes by hand")
    return data


def read_in_folder(path: Path, most: int) -> bytes:
    """The content of a plain file in a folder that may be somebody else's as well, and no link either."""
    folder = open_folder(path.parent)
    try:
        return read_plain(path.name, most, folder)
    finally:
        os.close(folder)


def _expect_plain(mode: int) -> None:
    if words := kind_of(mode):
        raise Refused(f"is {words} and not a plain file: it was not opened")


def write(path: Path, data: bytes) -> None:
    """All of it or nothing, also where two write at once; a read-only file of before is replaced."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
