"""Reading a file that is to be judged: whatever stands under its name, and whatever is in it."""

from __future__ import annotations

import io
import os
import stat
import tokenize
from pathlib import Path

from graders.judge import LONGEST_FILE

UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class CannotRead(Exception):
    """There is no file to judge; one line for the user says why."""


class NotText(Exception):
    """The file is there and is no program text: what was seen, and what is likely behind it."""

    def __init__(self, observed: str, cause: str) -> None:
        super().__init__(observed)
        self.observed = observed
        self.cause = cause


def read(path: Path) -> str:
    """The text as Python itself would read it, coding cookie and byte order mark included."""
    return decode(read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """What is in the file, or its first bytes where it is far too long. Never waits: a pipe or a device is refused."""
    try:
        _expect_regular(os.stat(path).st_mode, path)
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with open(handle, "rb") as file:
            _expect_regular(os.fstat(handle).st_mode, path)  # it may have been exchanged meanwhile
            return file.read(LONGEST_FILE + 1) or b""
    except FileNotFoundError:
        raise CannotRead(f"there is no file {path}") from None
    except OSError as error:
        raise CannotRead(f"{path} cannot be read: {error.strerror}") from None


def _expect_regular(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise CannotRead(f"{path} is a folder: name the file in it")
    if not stat.S_ISREG(mode):
        raise CannotRead(f"{path} is not a regular file but a pipe, a socket or a device")


def decode(data: bytes) -> str:
    """Raises NotText for what Python could not read either, and for what no hand has written."""
    if len(data) > LONGEST_FILE:
        raise NotText(f"it has more than {LONGEST_FILE} bytes", "the wrong file, or one that a program has written to")
    if data.startswith(UTF_16):
        raise NotText("it is UTF-16, which Python does not read as source", "the editor's setting for new files")
    if b"\0" in data:
        raise NotText(
            f"byte {data.index(0)} is a NUL, which no text has", "a database, a notebook, or a program in binary"
        )
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except UnicodeDecodeError as error:
        observed = f"byte {error.start}, 0x{data[error.start]:02x}, is not {error.encoding}"
        raise NotText(observed, "it was saved in another encoding, or is no text at all") from None
    except (SyntaxError, LookupError, ValueError) as error:
        cause = "the coding comment in its first two lines, or bytes that are no UTF-8"
        raise NotText(f"Python cannot tell its encoding: {error}", cause) from None
