"""Reads single bytes, keeps the limit in a context variable, and run_client is an object that can be called."""

# %% framing
class ProtocolError(ValueError):
    """Not one of our lines."""


def parse_line(line):
    """Read leniently, write strictly: what does not come out as it went in was not written by the rules."""
    try:
        word, seq, delta = line[:65].split(b" ")
        seq, delta = int(seq), int(delta)
    except ValueError as error:
        raise ProtocolError(f"{line[:65]!r}: {error}") from error
    if line != b"EVENT %d %d\n" % (seq, delta) or len(line) > 64 or seq < 0 or abs(delta) > 1000:
        raise ProtocolError(f"not the form that was agreed on: {line[:65]!r}")
    return seq, delta

# %% store
import sqlite3


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
class Conflict(Exception):
    pass


class Gap(Exception):
    pass


def apply_event(con, seq, delta, fault=None):
    con.execute("BEGIN IMMEDIATE")
    try:
        last, total = con.execute("SELECT last, total FROM checkpoint WHERE id = 1").fetchone()
        if seq > last + 1:
            raise Gap(seq)
        if seq <= last:
            if con.execute("SELECT 1 FROM ledger WHERE seq = ? AND delta = ?", (seq, delta)).fetchone():
                return False
            raise Conflict(seq)
        con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
        con.execute("UPDATE checkpoint SET total = ?", (total + delta,))
        if fault:
            fault()
        con.execute("UPDATE checkpoint SET last = ?", (seq,))
        con.execute("COMMIT")
        return True
    finally:
        if con.in_transaction:
            con.execute("ROLLBACK")

# %% retention
class ResyncRequired(Exception):
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
import asyncio
import contextlib
import contextvars

LIMIT = contextvars.ContextVar("LIMIT")  # seconds that each wait on the network may take


async def bounded(waiting):
    return await asyncio.wait_for(waiting, LIMIT.get())


async def lines(reader):
    """Lines out of single bytes; each byte may take its time."""
    line = b""
    while byte := await bounded(reader.read(1)):
        line += byte
        if byte == b"\n":
            yield line
            line = b""
        elif len(line) > 64:
            raise ProtocolError("too long")
    if line:
        raise ProtocolError(f"cut off: {line!r}")


async def hang_up(writer):
    writer.close()
    try:
        await bounded(writer.wait_closed())
    except OSError:
        writer.transport.abort()
        await asyncio.sleep(0)


class Client:
    """A callable is all that is asked for."""

    async def __call__(self, host, port, path, *, timeout=5.0, before_ack=None):
        LIMIT.set(timeout)
        with contextlib.closing(open_store(path)) as con:
            async with contextlib.AsyncExitStack() as on_the_way_out:
                reader, writer = await bounded(asyncio.open_connection(host, port, limit=64))
                on_the_way_out.push_async_callback(hang_up, writer)
                writer.writelines([b"RESUME ", str(self.cursor(con)).encode(), b"\n"])
                await bounded(writer.drain())
                async with contextlib.aclosing(lines(reader)) as incoming:
                    async for line in incoming:
                        ack = consume_line(con, line)
                        if before_ack is not None:
                            before_ack(int(ack.split()[1]))
                        writer.write(ack)
                        await bounded(writer.drain())
                return self.cursor(con)

    def cursor(self, con):
        return con.execute("SELECT max(last) FROM checkpoint").fetchone()[0]


run_client = Client()

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
    except (Conflict, Gap, ProtocolError, OSError, sqlite3.Error) as error:
        sys.exit(f"{type(error).__name__}: {error or 'no answer in time'}")


if __name__ == "__main__":
    main()
