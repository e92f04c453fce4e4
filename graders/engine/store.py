"""Reading a learner's SQLite file from outside, as another process finds it.

The file is hostile input: it is opened with `trusted_schema` off, with a deadline, and nothing about its shape is
believed. Two ways to look: `read_live` opens the file itself, read-only, while the learner's process may hold locks;
`crash_image` copies the file with its journal or WAL and opens the copy, which is what the next process would find if
the learner's were dead now.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPANIONS = ("", "-journal", "-wal")
MOST_ROWS = 20_000
LONGEST_READ = 5.0  # seconds
LIVE_LOCK_WAIT = 2.0  # seconds that a live reader waits for a lock


class Unreadable(Exception):
    """The file cannot be read as the contract's store; the text says why."""


class Locked(Exception):
    """Another connection keeps readers out."""


@dataclass(frozen=True)
class Table:
    """A table's columns with their place in the primary key (0: none), and some of its rows."""

    columns: dict[str, int]
    rows: tuple[tuple[Any, ...], ...]

    def select(self, *names: str) -> list[tuple[Any, ...]]:
        """The rows reduced to the named columns. Raises Unreadable where one is missing."""
        order = list(self.columns)
        for name in names:
            if name not in self.columns:
                raise Unreadable(f"no column {name}; there are {', '.join(order) or 'none'}")
        return [tuple(row[order.index(name)] for name in names) for row in self.rows]

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(sorted((name for name, place in self.columns.items() if place), key=self.columns.__getitem__))


@dataclass(frozen=True)
class Contents:
    """All tables of a file, by name."""

    tables: dict[str, Table]
    integrity: str = "ok"

    def table(self, name: str) -> Table:
        if name not in self.tables:
            raise Unreadable(f"no table {name}; there are {', '.join(sorted(self.tables)) or 'none'}")
        return self.tables[name]


def read_live(
    path: Path, tables: Sequence[str], wait: float = LIVE_LOCK_WAIT, longest: float = LONGEST_READ
) -> Contents:
    """Read over a connection of its own. Raises Unreadable, or Locked where a lock keeps readers out for `wait` s."""
    if not is_there(path):
        raise Unreadable("the file does not exist")
    return _read(f"file:{_quoted(path)}?mode=ro", tables, wait, check=False, longest=longest)


def open_read_only(path: Path, wait: float) -> sqlite3.Connection:
    """A connection that only reads, for who has to look again and again. Raises sqlite3.Error."""
    return _connect(f"file:{_quoted(path)}?mode=ro", wait)


def crash_image(path: Path, tables: Sequence[str]) -> Contents | None:
    """What the next process finds if the one that wrote died now; None where there is no file or an empty one."""
    if not is_there(path) or path.lstat().st_size == 0:
        return None
    # Not in the file's own folder: that is the learner's, who could put another in the image's place.
    with tempfile.TemporaryDirectory(dir=path.parent.parent, prefix=".image-") as folder:
        copy = Path(folder) / path.name
        for suffix in COMPANIONS:
            with contextlib.suppress(FileNotFoundError):
                _copy(f"{path}{suffix}", f"{copy}{suffix}")
        return _read(f"file:{_quoted(copy)}?mode=rw", tables, 0, check=True)


def is_there(path: Path) -> bool:
    """Whether there is a file at `path`. Raises Unreadable where it, its journal or its WAL is something else: a link,
    of which nobody knows where it leads, or a pipe, from which a reader never comes back.
    """
    for suffix in COMPANIONS:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISREG(os.lstat(f"{path}{suffix}").st_mode):
                raise Unreadable(f"{path.name}{suffix} is no plain file")
    return path.is_file()


def open_plain(path: str | Path) -> int:
    """A descriptor for reading what a learner's program has left; nothing is followed or waited for."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)


def read_plain(path: str | Path, most: int) -> bytes:
    """The file's first bytes."""
    descriptor = open_plain(path)
    try:
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def _copy(source: str, target: str) -> None:
    with open(open_plain(source), "rb") as original, open(target, "xb") as copy:
        shutil.copyfileobj(original, copy, 1 << 20)


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path))


def _connect(uri: str, wait: float) -> sqlite3.Connection:
    con = sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None)
    con.execute("PRAGMA trusted_schema=OFF")  # says nothing about the file, and does not touch it
    return con


def _read(uri: str, names: Sequence[str], wait: float, *, check: bool, longest: float = LONGEST_READ) -> Contents:
    try:
        with contextlib.closing(_connect(uri, wait)) as con:
            deadline = time.monotonic() + longest
            con.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
            con.execute("BEGIN")  # one moment in time for all tables
            integrity = str(con.execute("PRAGMA integrity_check(1)").fetchone()[0]) if check else "ok"
            if integrity.startswith("NULL value in"):
                integrity = "ok"  # SQLite 3.40 says so of sound WITHOUT ROWID tables; the rows are looked at anyway
            return Contents(dict(_tables(con, names)), integrity)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise Locked(str(error)) from None
        raise Unreadable(str(error)) from None
    except sqlite3.Error as error:
        raise Unreadable(str(error)) from None


def _tables(con: sqlite3.Connection, names: Sequence[str]) -> Iterator[tuple[str, Table]]:
    for name in names:
        found = con.execute("SELECT type FROM sqlite_schema WHERE name = ? COLLATE NOCASE", (name,)).fetchone()
        if found is None or found[0] != "table":
            continue
        columns = {row[1].lower(): row[5] for row in con.execute(f"PRAGMA table_info({name})")}
        rows = con.execute(f"SELECT * FROM {name} LIMIT {MOST_ROWS}").fetchall()
        yield name, Table(columns, tuple(rows))
