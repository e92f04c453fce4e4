"""Type hints everywhere, data classes, a common base of all exceptions."""

from __future__ import annotations


class ReceiverError(Exception):
    """The common base of everything that this receiver raises on its own."""

# %% framing
import re
from typing import NamedTuple


class ProtocolError(ReceiverError, ValueError):
    """The line is not an event."""


class Event(NamedTuple):
    seq: int
    delta: int


GRAMMAR: re.Pattern[bytes] = re.compile(rb"EVENT (?P<seq>0|[1-9][0-9]*) (?P<delta>0|-?[1-9][0-9]*)\n")


def parse_line(line: bytes) -> Event:
    match: re.Match[bytes] | None = GRAMMAR.fullmatch(line) if len(line) <= 64 else None
    if match is None:
        raise ProtocolError(line)
    event = Event(**{name: int(number) for name, number in match.groupdict().items()})
    if abs(event.delta) > 1000:
        raise ProtocolError(event)
    return event

# %% store
import sqlite3
from dataclasses import dataclass
from os import PathLike


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    key: str
    values: tuple[str, ...]

    def create(self, con: sqlite3.Connection) -> None:
        columns = ", ".join(f"{value} INTEGER NOT NULL" for value in self.values)
        con.execute(f"CREATE TABLE IF NOT EXISTS {self.name} ({self.key} INTEGER PRIMARY KEY, {columns})")

    def fits(self, con: sqlite3.Connection) -> bool:
        found = con.execute(f"PRAGMA table_info({self.name})").fetchall()
        keys = [row[1] for row in found if row[5]]
        return keys == [self.key] and {row[1] for row in found} >= {self.key, *self.values}


CHECKPOINT = Table("checkpoint", "id", ("last", "total"))
LEDGER = Table("ledger", "seq", ("delta",))


def open_store(path: str | PathLike[str]) -> sqlite3.Connection:
    con: sqlite3.Connection = sqlite3.connect(path, isolation_level=None)
    try:
        con.execute("BEGIN IMMEDIATE")
        for table in (CHECKPOINT, LEDGER):
            table.create(con)
            if not table.fits(con):
                raise sqlite3.DatabaseError(f"unexpected shape: {table}")
        con.execute("INSERT OR IGNORE INTO checkpoint (id, last, total) VALUES (1, -1, 0)")
        con.execute("COMMIT")
    except BaseException:
        con.close()
        raise
    return con

# %% atomic_apply
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class Conflict(ReceiverError):
    seq: int
    known: int
    given: int

    def __str__(self) -> str:
        return f"event {self.seq} is stored with {self.known} and came with {self.given}"


@dataclass(eq=False)
class Gap(ReceiverError):
    expected: int
    given: int

    def __str__(self) -> str:
        return f"event {self.expected} is next, {self.given} came"


def apply_event(con: sqlite3.Connection, seq: int, delta: int, fault: Callable[[], Any] | None = None) -> bool:
    con.execute("BEGIN IMMEDIATE")
    try:
        last: int = con.execute("SELECT last FROM checkpoint WHERE id = 1").fetchone()[0]
        match seq - last:
            case 1:
                con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
                con.execute("UPDATE checkpoint SET total = total + ? WHERE id = 1", (delta,))
                if fault is not None:
                    fault()
                con.execute("UPDATE checkpoint SET last = ? WHERE id = 1", (seq,))
            case distance if distance > 1:
                raise Gap(last + 1, seq)
            case _:
                known: int = con.execute("SELECT delta FROM ledger WHERE seq = ?", (seq,)).fetchone()[0]
                if known != delta:
                    raise Conflict(seq, known, delta)
        con.execute("COMMIT")
        return seq > last
    except BaseException:
        if con.in_transaction:
            con.execute("ROLLBACK")
        raise

# %% retention
import itertools
from collections.abc import Sequence


class ResyncRequired(ReceiverError):
    pass


def replay(log: Sequence[tuple[int, int]], cursor: int, limit: int) -> list[tuple[int, int]]:
    numbers = [seq for seq, _ in log]
    if len(numbers) not in range(1, 129) or any(b - a != 1 for a, b in itertools.pairwise(numbers)):
        raise ValueError("1 to 128 consecutive items are needed")
    if limit not in range(1, 17) or cursor < -1:
        raise ValueError("limit or cursor out of range")
    if cursor + 1 < numbers[0] or cursor > numbers[-1]:
        raise ResyncRequired(cursor)
    return list(itertools.islice((item for item in log if item[0] > cursor), limit))

# %% ack_after_commit
def consume_line(con: sqlite3.Connection, line: bytes) -> bytes:
    event = parse_line(line)
    apply_event(con, *event)
    return b"ACK %d\n" % event[0]

# %% reclamation
import asyncio
from typing import Final

DEFAULT_TIMEOUT: Final = 5.0


async def close(writer: asyncio.StreamWriter, timeout: float) -> None:
    writer.close()
    try:
        async with asyncio.timeout(timeout):
            await writer.wait_closed()
    except (TimeoutError, ConnectionError):
        writer.transport.abort()
        await asyncio.sleep(0)


async def read_line(reader, timeout):
    try:
        async with asyncio.timeout(timeout):
            return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise ProtocolError(str(error)) from error
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise ProtocolError(str(error)) from error
        return None


async def session(con, reader, writer, timeout, before_ack):
    async def say(text):
        writer.write(text)
        async with asyncio.timeout(timeout):
            await writer.drain()

    await say(b"RESUME %d\n" % con.execute("SELECT last FROM checkpoint").fetchone())
    while (line := await read_line(reader, timeout)) is not None:
        ack = consume_line(con, line)
        if before_ack:
            before_ack(parse_line(line)[0])
        await say(ack)
    return con.execute("SELECT last FROM checkpoint").fetchone()[0]


async def run_client(
    host: str,
    port: int,
    path: str,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    before_ack: Callable[[int], object] | None = None,
) -> int:
    con = open_store(path)
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port, limit=64)
        try:
            return await session(con, reader, writer, timeout, before_ack)
        finally:
            await close(writer, timeout)
    finally:
        con.close()

# %% reconnect
import argparse
import os
import sys


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("db")
    parser.add_argument("--timeout", type=float, default=5.0)
    parser.add_argument("--exit-before-ack", type=int, default=-1)
    given = parser.parse_args(argv)

    def lose_power(seq):
        if seq == given.exit_before_ack:
            os._exit(17)

    try:
        asyncio.run(run_client(given.host, given.port, given.db, timeout=given.timeout, before_ack=lose_power))
    except (Conflict, Gap, ProtocolError, OSError, sqlite3.Error) as error:
        sys.exit(f"{type(error).__name__}: {error or 'no answer in time'}")


if __name__ == "__main__":
    main()
