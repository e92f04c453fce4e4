"""Reading a file as Python does, and saying what is wrong where Python could not."""

from __future__ import annotations

import os
import socket
import stat
import tokenize
from pathlib import Path

import pytest

from graders.judge import LONGEST_FILE
from lab.source import CannotRead, NotText, decode, read


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"x = 1\n", "x = 1\n"),
        (b"x = 1", "x = 1"),
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n"),
        (b"x = 1\r\ny = 2\r\n", "x = 1\ny = 2\n"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "# -*- coding: latin-1 -*-\nx = 'é'\n"),
        (b"\n# vim: set fileencoding=cp1252 :\nx = '\x80'\n", "\n# vim: set fileencoding=cp1252 :\nx = '€'\n"),
        ("x = 'ﾊ'\n".encode(), "x = 'ﾊ'\n"),
        (b"\xef\xbb\xbf# coding: utf-8\nx = 1\n", "# coding: utf-8\nx = 1\n"),
    ],
)
def test_text_is_read_as_python_reads_it(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "client.py"
    path.write_bytes(data)
    assert read(path) == text
    with tokenize.open(path) as file:
        assert file.read() == text


@pytest.mark.parametrize(
    ("data", "observed"),
    [
        (b"# %% framing\nx = '\xe9'\n", "the byte 0xe9 in line 2 is not utf-8"),
        (b"\n\n\n\xe9", "the byte 0xe9 in line 4 is not utf-8"),
        (b"#" * 100_000 + b"\n\xe9\n", "the byte 0xe9 in line 2 is not utf-8"),
        (b"\xef\xbb\xbfx = 1\ny = '\xe9'\n", "the byte 0xe9 in line 2 is not utf-8"),
        (b"# coding: no-such-thing\n", "Python cannot tell its encoding: unknown encoding: no-such-thing"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "Python cannot tell its encoding"),
        (b"# coding: rot13\nk = 1\n", "Python cannot tell its encoding"),
        (b"# coding: hex\nk = 1\n", "Python cannot tell its encoding"),
        (b"# coding: ascii\nx = '\xe9'\n", "the byte 0xe9 in line 2 is not ascii"),
        (b"x = 1\n\0", "line 2 has a NUL"),
        (b"SQLite format 3\0", "line 1 has a NUL"),
        ("x = 1\n".encode("utf-16"), "it is UTF-16"),
        ("x = 1\n".encode("utf-32"), "it is UTF-16"),
        (bytes(range(1, 256)), "is not utf-8"),
        (b"#" * (LONGEST_FILE + 1), f"it has more than {LONGEST_FILE} bytes"),
    ],
)
def test_what_is_no_text_is_described(data: bytes, observed: str) -> None:
    with pytest.raises(NotText) as seen:
        decode(data)
    assert observed in seen.value.observed
    assert seen.value.cause and "\n" not in seen.value.observed


def test_the_longest_file_is_still_read() -> None:
    assert len(decode(b"#" * LONGEST_FILE)) == LONGEST_FILE


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("")
    words = {
        tmp_path / "missing.py": "there is no file",
        tmp_path / "broken": "there is no file",
        tmp_path / "loop": "cannot be read: Too many levels",
        tmp_path / "file" / "client.py": "cannot be read: Not a directory",
        tmp_path / ("x" * 300): "cannot be read: File name too long",
        tmp_path: "is a folder",
        tmp_path / "fifo": "is not a regular file",
        Path(os.devnull): "is not a regular file",
        Path("/dev/zero"): "is not a regular file",
    }
    for path, expected in words.items():
        with pytest.raises(CannotRead) as told:
            read(path)
        assert expected in str(told.value) and "\n" not in str(told.value)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        with pytest.raises(CannotRead, match="is not a regular file"):
            read(Path("s"))


def test_a_file_that_becomes_a_pipe_in_between_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "client.py"
    path.write_text("x = 1\n")
    was = os.stat(path)
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(os, "stat", lambda *_, **__: was)
    assert stat.S_ISREG(os.stat(path).st_mode)
    with pytest.raises(CannotRead, match="is not a regular file"):
        read(path)


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "client.py"
    path.write_text("x = 1\n")
    path.chmod(0)
    if os.geteuid() == 0:  # nothing is forbidden to root

        def forbidden(*_: object, **__: object) -> int:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(CannotRead, match="cannot be read: Permission denied"):
        read(path)
