"""The contract's store, seen from outside: cursor, total and ledger, and what must always hold between them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graders.engine import store
from graders.engine.rules import Case
from graders.engine.store import Contents, Locked, Unreadable
from graders.engine.story import Story

TABLES = ("checkpoint", "ledger")
PLAIN_SHAPE = (
    "CREATE TABLE checkpoint (id INTEGER PRIMARY KEY, last INTEGER, total INTEGER)",
    "CREATE TABLE ledger (seq INTEGER PRIMARY KEY, delta INTEGER)",
)
Events = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Books:
    """What a store says: the cursor, the total, and the ledger's `(seq, delta)` in order of seq."""

    last: int
    total: int
    ledger: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        shown = ", ".join(f"{seq}:{delta:+d}" for seq, delta in self.ledger[:12])
        more = f", … ({len(self.ledger)} rows)" if len(self.ledger) > 12 else ""
        return f"last={self.last} total={self.total} ledger={{{shown}{more}}}"

    def told_against(self, expected: Books) -> str:
        """As str(self), with the first event that differs where the beginning of the ledger does not show it."""
        if str(self) != str(expected):
            return str(self)
        mine, wanted = dict(self.ledger), dict(expected.ledger)
        seq = min(seq for seq, _ in {*self.ledger} ^ {*expected.ledger})
        return f"{self}, and in it event {seq} is {mine.get(seq, 'missing')}, not {wanted.get(seq, 'missing')}"

    def trouble(self) -> str:
        """What does not fit together, or the empty string."""
        seqs = [seq for seq, _ in self.ledger]
        if seqs != list(range(len(seqs))):
            return "the ledger has a hole or a row twice"
        if self.last != len(seqs) - 1:
            return f"last is {self.last}, but the ledger's greatest seq is {len(seqs) - 1 if seqs else 'none'}"
        if self.total != sum(delta for _, delta in self.ledger):
            return f"total is {self.total}, but the ledger adds up to {sum(delta for _, delta in self.ledger)}"
        return ""


EMPTY = Books(-1, 0, ())


def books_after(events: Events) -> Books:
    """What the store must say when exactly `events`, consecutive from 0, have been processed."""
    return Books(len(events) - 1, sum(delta for _, delta in events), tuple(events))


def books_of(contents: Contents) -> Books:
    """Raises Unreadable where the contents are not of the contract's shape."""
    if contents.integrity != "ok":
        raise Unreadable(f"integrity_check says: {contents.integrity}")
    rows = [row[1:] for row in contents.table("checkpoint").select("id", "last", "total") if row[0] == 1]
    if len(rows) != 1 or len(contents.table("checkpoint").rows) != 1:
        raise Unreadable(f"checkpoint has {len(contents.table('checkpoint').rows)} rows; one with id=1 is expected")
    ledger = contents.table("ledger").select("seq", "delta")
    numbers = [*rows[0], *(value for row in ledger for value in row)]
    if not all(isinstance(value, int) for value in numbers):
        raise Unreadable(
            f"something in it is no integer: {[value for value in numbers if not isinstance(value, int)][:3]}"
        )
    return Books(rows[0][0], rows[0][1], tuple(sorted(ledger)))


def found_after_crash(path: Path) -> Books:
    """What the next process finds; a file that is not there yet, or has no tables yet, counts as new."""
    contents = store.crash_image(path, TABLES)
    if contents is None or not contents.tables:
        return EMPTY
    return books_of(contents)


def look(case: Case, path: Path, when: str, story: Story | None = None) -> Books:
    """Read the store over a connection of the judge's own, into the story. An unreadable store breaks the rule."""
    story = story or case.story
    try:
        books = books_of(store.read_live(path, TABLES))
    except (Unreadable, Locked) as error:
        story.store(f"{when}, another connection cannot read it: {error}")
        locked = isinstance(error, Locked)
        case.fail(
            f"another connection can read the store {when}",
            str(error),
            "a transaction was left open" if locked else "the file has not the contract's shape",
            "where BEGIN and COMMIT stand" if locked else "the tables that open_store makes",
        )
    story.store(f"{when}, another connection finds {books}")
    return books


def expect_books(case: Case, path: Path, expected: Books, when: str, cause: str = "", look_at: str = "") -> None:
    """The store, read from outside, must say exactly this."""
    books = look(case, path, when)
    if books != expected:
        case.fail(f"{when}: {expected}", books.told_against(expected), cause or books.trouble(), look_at)


def make_store(path: Path, events: Events = (), *, wal: bool = False, shape: Sequence[str] = PLAIN_SHAPE) -> None:
    """A store of exactly the contract's shape with `events` processed, as another program may have made it.

    It is made elsewhere and put in its place whole: in a folder that the learner's program has had, the place may be a
    link.
    """
    with tempfile.TemporaryDirectory(dir=path.parent.parent, prefix=".new-") as folder:
        made = Path(folder) / path.name
        _make(made, events, wal=wal, shape=shape)
        try:
            os.replace(made, path)
        except OSError as error:
            raise Unreadable(f"no store can be put at {path.name}: {error.strerror}") from None


def _make(path: Path, events: Events, *, wal: bool, shape: Sequence[str]) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as con:
        if wal:
            con.execute("PRAGMA journal_mode=WAL").fetchone()
        con.execute("BEGIN")
        for statement in shape:
            con.execute(statement)
        total = sum(delta for _, delta in events)
        con.execute("INSERT INTO checkpoint (id, last, total) VALUES (1, ?, ?)", (len(events) - 1, total))
        con.executemany("INSERT INTO ledger (seq, delta) VALUES (?, ?)", events)
        con.execute("COMMIT")


def make_events(case: Case, count: int, start: int = 0) -> list[tuple[int, int]]:
    """Consecutive events with distinct non-zero deltas, so that a loss and a duplicate cannot cancel out."""
    magnitudes = case.random.sample(range(1, 1000), count)
    return [(start + index, size * case.random.choice((1, -1))) for index, size in enumerate(magnitudes)]


LONG = 1200  # events of a receiver that has been at work for long: more than any log or batch would keep
BORDERS = (0, 1, -1, 1000, -1000)


def mixed_events(case: Case, count: int, start: int = 0) -> list[tuple[int, int]]:
    """Consecutive events with deltas of every kind: all of BORDERS among any few, and a sum that moves away from 0."""
    sign = case.random.choice((1, -1))
    deltas: list[int] = []
    while len(deltas) < count:
        block = [*BORDERS, *(sign * case.random.randint(2, 999) for _ in range(3))]
        case.random.shuffle(block)
        deltas += block
    return list(enumerate(deltas[:count], start))


def another_delta(delta: int) -> int:
    """Another delta that the contract allows."""
    return (delta + 1500) % 2001 - 1000


@contextlib.contextmanager
def connection(path: Path, timeout: float = 2.0):  # type: ignore[no-untyped-def]
    """A writing connection of the judge's own, for playing the second process. Raises Unreadable for what is no plain
    file.
    """
    store.is_there(path)
    con = sqlite3.connect(path, isolation_level=None, timeout=timeout, check_same_thread=False)
    try:
        yield con
    finally:
        con.close()
