"""Watching a store while somebody else writes it: what another process can see of it, moment by moment.

The connection is its own and read-only. While nothing changes, a look costs one `PRAGMA data_version`, and what it
looks at is never opened in any other way: closing a plain descriptor would drop the locks that this process, the
learner's notebook, may hold on the same file.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from graders.engine import store
from graders.engine.store import Contents, Locked, Unreadable
from graders.receiver.ledger import TABLES, Books, books_of
from graders.report.parts import shorten, visible

State = Literal["readable", "missing", "empty", "locked", "unreadable", "unfinished"]
LOCK_WAIT = 0.05  # seconds; whoever watches must not keep others waiting
LONGEST_LOOK = 0.5  # seconds
LOCKS = Path("/proc/locks")
RESERVED_BYTE = 0x40000001  # the byte of a store that its one writer has locked, from BEGIN IMMEDIATE to the end
WAL_WRITE_BYTE = 120  # the same in the -shm file of a store in WAL mode
LONGEST_WORDS = 300  # characters of what SQLite says

UNFINISHED = (
    "Whoever wrote last has ended in the middle of a transaction. The journal beside the file undoes it as soon as the "
    "store is opened for writing."
)


@dataclass(frozen=True)
class Moment:
    """What could be seen at one moment: the books where they can be read, otherwise in words why not."""

    state: State
    told: str
    books: Books | None = None
    writing: bool = False  # somebody has a transaction open, and nobody else sees what is in it

    def __str__(self) -> str:
        busy = " A write transaction is open." if self.writing else ""
        return self.told + busy


LOCKED = Moment("locked", "Locked: somebody keeps all readers out.")


def unreadable(error: Exception) -> Moment:
    return Moment("unreadable", f"Cannot be read as a store: {visible(shorten(str(error), LONGEST_WORDS))}.")


class StoreWatch:
    """Looks at the store at `path`. Everything, `close` included, is called from one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: Moment | None = None
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of what the connection has open
        self._read_at: tuple[int, ...] | None = None  # the version that `seen` shows

    def look(self) -> Moment | None:
        """What is to be seen now; None where that is what was seen before."""
        moment = replace(self._now(), writing=write_is_open(self.path))
        if moment == self.seen:
            return None
        self.seen = moment
        return moment

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._file, self._read_at = None, None, None

    def _now(self) -> Moment:
        try:
            facts = os.stat(self.path)
        except OSError as error:
            self.close()
            reason = "There is no such file" if isinstance(error, FileNotFoundError) else f"{error.strerror}"
            return Moment("missing", f"{reason}: {self.path.name}.")
        if not stat.S_ISREG(facts.st_mode):
            self.close()
            return Moment("unreadable", f"{self.path.name} is no file.")
        if (facts.st_dev, facts.st_ino) != self._file:
            self.close()
        if not facts.st_size:
            return Moment("empty", "The file is still empty: no transaction has made the tables yet.")
        try:
            return self._read(facts)
        except Locked:
            return LOCKED
        except Unreadable as error:
            return unreadable(error)
        except sqlite3.Error as error:
            return self._refused(error)

    def _read(self, facts: os.stat_result) -> Moment:
        version = (self._version(facts), facts.st_mtime_ns, facts.st_size)
        if version == self._read_at and self.seen is not None:
            return self.seen
        self._read_at = None
        moment = what_it_says(store.read_live(self.path, TABLES, LOCK_WAIT, LONGEST_LOOK))
        self._read_at = version  # only now: what could not be read is tried again, it may have been a slow machine
        return moment

    def _version(self, facts: os.stat_result) -> int:
        """SQLite's number that is another one whenever somebody else has committed."""
        if self._connection is None:
            self._connection = store.open_read_only(self.path, LOCK_WAIT)
            self._file = (facts.st_dev, facts.st_ino)
        deadline = time.monotonic() + LONGEST_LOOK
        self._connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _refused(self, error: sqlite3.Error) -> Moment:
        self.close()
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            return Moment("unfinished", UNFINISHED)
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            return LOCKED
        return unreadable(error)


def what_it_says(contents: Contents) -> Moment:
    if not contents.tables:
        return Moment("empty", "The file has no checkpoint and no ledger yet.")
    if any(len(table.rows) >= store.MOST_ROWS for table in contents.tables.values()):
        return Moment("unreadable", f"It has {store.MOST_ROWS} rows or more: too many to show.")
    try:
        books = books_of(contents)
    except Unreadable as error:
        return unreadable(error)
    return Moment("readable", f"{books.trouble().capitalize() or 'The books balance'}.", books)


def write_is_open(path: Path) -> bool:
    """Whether somebody has a write transaction open on the store.

    Linux lists all locks in a file of its own, so nothing has to be opened to see that. Elsewhere, a journal with
    something in it is the next best sign; it is there once the transaction has changed something, and not in WAL mode.
    """
    try:
        listed = LOCKS.read_text()
    except OSError:
        return _size(f"{path}-journal") > 0
    wanted = set(_lock_bytes(path))
    return any(covers(line, inode, byte) for line in listed.splitlines() for inode, byte in wanted)


def _lock_bytes(path: Path) -> Iterator[tuple[str, int]]:
    for name, byte in ((str(path), RESERVED_BYTE), (f"{path}-shm", WAL_WRITE_BYTE)):
        with suppress(OSError):
            yield str(os.stat(name).st_ino), byte


def covers(line: str, inode: str, byte: int) -> bool:
    """Whether a line of /proc/locks is a write lock on that byte. Some file systems list another device than `stat`
    tells, so the inode has to do; that another file of its number is locked at just this byte does not happen.
    """
    fields = line.split()
    if len(fields) != 8 or fields[3] != "WRITE" or fields[5].rpartition(":")[2] != inode:
        return False
    first, last = fields[6:]
    return int(first) <= byte and (last == "EOF" or byte <= int(last))


def _size(name: str) -> int:
    try:
        return os.stat(name).st_size
    except OSError:
        return 0
