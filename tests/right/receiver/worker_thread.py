"""SQLite works in a thread of its own."""

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
from bisect import bisect_right
from operator import itemgetter


class ResyncRequired(LookupError):
    pass


def replay(log, cursor, limit):
    seqs = list(map(itemgetter(0), log))
    checks = {
        "the log is empty": not seqs,
        "the log is too long": len(seqs) > 128,
        "the log is not consecutive": seqs != [*range(seqs[0], seqs[0] + len(seqs))] if seqs else False,
        "limit is outside 1..16": not 0 < limit < 17,
        "cursor is below -1": cursor < -1,
    }
    for problem, found in checks.items():
        if found:
            raise ValueError(problem)
    if cursor < seqs[0] - 1:
        raise ResyncRequired("too old")
    if cursor > seqs[-1]:
        raise ResyncRequired("from the future")
    start = bisect_right(seqs, cursor)
    return [*log[start : start + limit]]

# %% ack_after_commit
def consume_line(con, line: bytes) -> bytes:
    event = parse_line(line)
    apply_event(con, *event)
    return b" ".join((b"ACK", str(event[0]).encode())) + b"\n"

# %% reclamation
import asyncio
from concurrent.futures import ThreadPoolExecutor


async def run_client(host, port, path, *, timeout=5.0, before_ack=None):
    """All of SQLite happens in one thread of its own, so a slow disk does not hold up the event loop."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as disk:
        con = await loop.run_in_executor(disk, open_store, path)
        try:
            cursor = lambda: con.execute("SELECT last FROM checkpoint").fetchone()[0]  # noqa: E731
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port, limit=64), timeout)
            try:
                writer.write(b"RESUME %d\n" % await loop.run_in_executor(disk, cursor))
                await asyncio.wait_for(writer.drain(), timeout)
                while line := await next_line(reader, timeout):
                    ack = await loop.run_in_executor(disk, consume_line, con, line)
                    if before_ack is not None:
                        before_ack(parse_line(line)[0])
                    writer.write(ack)
                    await asyncio.wait_for(writer.drain(), timeout)
                return await loop.run_in_executor(disk, cursor)
            finally:
                await hang_up(writer, timeout)
        finally:
            disk.submit(con.close).result()


async def next_line(reader, timeout):
    try:
        return await asyncio.wait_for(reader.readuntil(b"\n"), timeout)
    except asyncio.LimitOverrunError as error:
        raise ProtocolError("no LF in time") from error
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise ProtocolError("cut off") from error
        return b""


async def hang_up(writer, timeout):
    writer.close()
    try:
        await asyncio.wait_for(writer.wait_closed(), timeout)
    except OSError:
        writer.transport.abort()
        await asyncio.sleep(0)

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
