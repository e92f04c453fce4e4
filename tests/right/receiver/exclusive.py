"""BEGIN EXCLUSIVE: others do not even read meanwhile."""

# %% framing
class ProtocolError(ValueError):
    pass


DIGITS = b"0123456789"


def natural(text):
    """A number without sign and without leading zeros, in ASCII digits only."""
    if not text or any(byte not in DIGITS for byte in text):
        raise ProtocolError(f"not a number: {text!r}")
    if text[0] == DIGITS[0] and len(text) > 1:
        raise ProtocolError(f"leading zero: {text!r}")
    value = 0
    for byte in text:
        value = value * 10 + byte - DIGITS[0]
    return value


def integer(text):
    if text[:1] != b"-":
        return natural(text)
    value = natural(text[1:])
    if value == 0:
        raise ProtocolError("minus zero")
    return -value


def parse_line(line):
    if len(line) > 64:
        raise ProtocolError("too long")
    if not line.startswith(b"EVENT ") or not line.endswith(b"\n"):
        raise ProtocolError(f"no event: {line!r}")
    words = line[6:-1].split(b" ")
    if len(words) != 2:
        raise ProtocolError(f"two numbers are needed: {line!r}")
    seq, delta = natural(words[0]), integer(words[1])
    if delta not in range(-1000, 1001):
        raise ProtocolError(f"delta out of range: {delta}")
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
        con.execute("BEGIN EXCLUSIVE")
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
    con.execute("BEGIN EXCLUSIVE")
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
