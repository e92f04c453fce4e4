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
    if (nul := data.find(0)) >= 0:
        cause = "the wrong file: a database or a picture, say"
        raise NotText(f"line {_line(data, nul)} has a NUL byte, which no text has", cause)
    try:
        return data.decode(_encoding(data)).replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        read = error.object  # without the byte order mark
        line, byte = _line(read, error.start), read[error.start]
        cause = "it was saved in another encoding, or is no text at all"
        raise NotText(f"the byte 0x{byte:02x} in line {line} is not {error.encoding}", cause) from None
    except (SyntaxError, LookupError, ValueError) as error:
        cause = "the comment about the coding in its first two lines"
        raise NotText(f"Python cannot tell its encoding: {error}", cause) from None


def _line(data: bytes, place: int) -> int:
    return data.count(b"\n", 0, place) + 1


def _encoding(data: bytes) -> str:
    """The encoding that Python takes from the byte order mark or from the comment in the first two lines."""
    try:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError:
        data.decode()  # raises the more helpful error, where that is what is wrong
        raise
