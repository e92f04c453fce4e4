"""Imports, helpers and a common base of all exceptions stand before the first step."""

import asyncio
import contextlib
import sqlite3

LINE_LIMIT = 64


class ReceiverError(Exception):
    """What a receiver can complain about."""


def one(con, query, *values):
    """The single row's columns, or its only column."""
    row = con.execute(query, values).fetchone()
    return row[0] if row is not None and len(row) == 1 else row


def last_of(con):
    return one(con, "SELECT last FROM checkpoint WHERE id = 1")


@contextlib.contextmanager
def rolled_back_on_error(con):
    try:
        yield
    except BaseException:
        if con.in_transaction:
            con.execute("ROLLBACK")
        raise

# %% framing
class ProtocolError(ReceiverError, ValueError):
    """Not one of our lines."""


def parse_line(line):
    """Read leniently, write strictly: what does not come out as it went in was not written by the rules."""
    try:
        word, seq, delta = line[:65].split(b" ")
        seq, delta = int(seq), int(delta)
    except ValueError as error:
        raise ProtocolError(f"{line[:65]!r}: {error}") from error
    if line != b"EVENT %d %d\n" % (seq, delta) or len(line) > LINE_LIMIT or seq < 0 or abs(delta) > 1000:
        raise ProtocolError(f"not the form that was agreed on: {line[:65]!r}")
    return seq, delta

# %% store

TABLES = (
    "CREATE TABLE IF NOT EXISTS checkpoint (id INTEGER PRIMARY KEY, last INTEGER, total INTEGER)",
    "CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY, delta INTEGER)",
    "INSERT INTO checkpoint (id, last, total) SELECT 1, -1, 0 WHERE NOT EXISTS (SELECT 1 FROM checkpoint)",
)


def shape(con, table):
    rows = con.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)).fetchall()
    kind = con.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    return kind == ("table",), {name for name, _ in rows}, [name for name, key in rows if key]


def verify(con):
    for table, columns, key in (("checkpoint", {"id", "last", "total"}, ["id"]), ("ledger", {"seq", "delta"}, ["seq"])):
        is_table, found, found_key = shape(con, table)
        if not is_table or not columns <= found or found_key != key:
            raise sqlite3.DatabaseError(f"{table} does not look like ours")


def open_store(path):
    con = sqlite3.connect(path, isolation_level=None)
    try:
        con.execute("BEGIN IMMEDIATE")
        for statement in TABLES:
            con.execute(statement)
        verify(con)
        con.execute("COMMIT")
    except BaseException:
        con.close()
        raise
    return con

# %% atomic_apply
class Conflict(ReceiverError):
    pass


class Gap(ReceiverError):
    pass


def apply_event(con, seq, delta, fault=None):
    con.execute("BEGIN IMMEDIATE")
    with rolled_back_on_error(con):
        last = last_of(con)
        if seq > last + 1:
            raise Gap(f"{last + 1} is next, not {seq}")
        new = seq > last
        if new:
            con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
            con.execute("UPDATE checkpoint SET total = total + ? WHERE id = 1", (delta,))
            if fault is not None:
                fault()
            con.execute("UPDATE checkpoint SET last = ? WHERE id = 1", (seq,))
        elif one(con, "SELECT delta FROM ledger WHERE seq = ?", seq) != delta:
            raise Conflict(f"{seq} has another delta")
        con.execute("COMMIT")
        return new

# %% retention
class ResyncRequired(ReceiverError):
    """Only a snapshot can help."""


def replay(log, cursor, limit):
    if not log or len(log) > 128:
        raise ValueError(f"{len(log)} items")
    if limit < 1 or limit > 16:
        raise ValueError(f"limit {limit}")
    if cursor < -1:
        raise ValueError(f"cursor {cursor}")
    first = log[0][0]
    for position, (seq, _delta) in enumerate(log):
        if seq != first + position:
            raise ValueError(f"item {position} is {seq}, not {first + position}")
    start = cursor + 1 - first
    if start < 0 or start > len(log):
        raise ResyncRequired(f"{cursor} is not within reach")
    return list(log[start : start + limit])

# %% ack_after_commit
def consume_line(con, line):
    seq, delta = parse_line(line)
    apply_event(con, seq, delta)
    return f"ACK {seq}\n".encode("ascii")

# %% reclamation
async def close(writer, timeout):
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


async def run_client(host, port, path, *, timeout=5.0, before_ack=None):
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


def main(argv=None):
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
    except (ReceiverError, OSError, sqlite3.Error) as error:
        sys.exit(f"{type(error).__name__}: {error or 'no answer in time'}")


if __name__ == "__main__":
    main()
