"""asyncio.timeout instead of wait_for."""

# %% framing
import re


class ProtocolError(ValueError):
    """Not one of our lines."""


LINE = re.compile(
    rb"""(?=.{1,64}\Z)            # the whole line, LF included
    EVENT[ ]
    (?P<seq>0|[1-9][0-9]*)[ ]
    (?P<delta>0|-?(?:1000|[1-9][0-9]{0,2}))
    \n""",
    re.VERBOSE | re.DOTALL,
)


def parse_line(line):
    found = LINE.fullmatch(line)
    if not found:
        raise ProtocolError(repr(line))
    return tuple(int(number) for number in found.groups())

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
        applied = change(con, seq, delta, fault)
        con.commit()
    except BaseException:
        con.rollback()  # does nothing where SQLite has already rolled back
        raise
    return applied


def change(con, seq, delta, fault):
    last = con.execute("SELECT last FROM checkpoint WHERE id = 1").fetchone()[0]
    if seq > last + 1:
        raise Gap(f"{seq} after {last}")
    if seq <= last:
        known = con.execute("SELECT delta FROM ledger WHERE seq = ?", [seq]).fetchone()
        if known[0] != delta:
            raise Conflict(f"{seq}: {known[0]} or {delta}?")
        return False
    con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", [seq, delta])
    con.execute("UPDATE checkpoint SET total = total + ? WHERE id = 1", [delta])
    if fault is not None:
        fault()
    con.execute("UPDATE checkpoint SET last = ? WHERE id = 1", [seq])
    return True

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
    except (Conflict, Gap, ProtocolError, OSError, sqlite3.Error) as error:
        sys.exit(f"{type(error).__name__}: {error or 'no answer in time'}")


if __name__ == "__main__":
    main()
