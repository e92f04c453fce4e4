"""This file itself has CRLF line ends, and its strings none."""

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
def consume_line(con, line):
    seq, delta = parse_line(line)
    apply_event(con, seq, delta)
    return f"ACK {seq}\n".encode("ascii")

# %% reclamation
import asyncio


class Lines:
    """Lines out of whatever pieces TCP delivers."""

    def __init__(self, reader, timeout):
        self.reader = reader
        self.timeout = timeout
        self.buffer = bytearray()

    def __aiter__(self):
        return self

    async def __anext__(self):
        while (end := self.buffer.find(b"\n")) < 0:
            if len(self.buffer) > 64:
                raise ProtocolError("too long")
            async with asyncio.timeout(self.timeout):
                piece = await self.reader.read(32)
            if not piece:
                if self.buffer:
                    raise ProtocolError(f"cut off: {bytes(self.buffer)!r}")
                raise StopAsyncIteration
            self.buffer += piece
        line = bytes(self.buffer[: end + 1])
        del self.buffer[: end + 1]
        return line


async def run_client(host, port, path, *, timeout=5.0, before_ack=None):
    con = open_store(path)
    try:
        last = con.execute("SELECT last FROM checkpoint").fetchone()[0]
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port, limit=64)
        try:
            writer.write(b"RESUME %d\n" % last)
            async with asyncio.timeout(timeout):
                await writer.drain()
            async for line in Lines(reader, timeout):
                ack = consume_line(con, line)
                seq = parse_line(line)[0]
                last = max(last, seq)
                if before_ack is not None:
                    before_ack(seq)
                writer.write(ack)
                async with asyncio.timeout(timeout):
                    await writer.drain()
            return last
        finally:
            writer.close()
            try:
                async with asyncio.timeout(timeout):
                    await writer.wait_closed()
            except OSError:
                writer.transport.abort()
                await asyncio.sleep(0)
    finally:
        con.close()

# %% reconnect
import argparse
import functools
import os
import sys

EXPECTED = (ProtocolError, Gap, Conflict, OSError, sqlite3.Error)


def arguments():
    parser = argparse.ArgumentParser(prog="client.py")
    parser.add_argument("host", metavar="HOST")
    parser.add_argument("port", metavar="PORT", type=int)
    parser.add_argument("path", metavar="DB")
    parser.add_argument("--timeout", metavar="S", type=float, default=5)
    parser.add_argument("--exit-before-ack", metavar="SEQ", type=int, dest="crash")
    return vars(parser.parse_args())


def crash_at(wanted, seq):
    if wanted == seq:
        os._exit(17)


def main():
    given = arguments()
    hook = functools.partial(crash_at, given.pop("crash"))
    try:
        with asyncio.Runner() as runner:
            last = runner.run(run_client(**given, before_ack=hook))
    except EXPECTED as error:
        print("The session did not end well.", file=sys.stderr)
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return os.EX_TEMPFAIL if hasattr(os, "EX_TEMPFAIL") else 75
    print(last)
    return 0


if __name__ == "__main__":
    sys.exit(main())
