"""The store has columns, constraints and a table of its own, and takes plain stores as well."""

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
    """CREATE TABLE IF NOT EXISTS checkpoint (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        last INTEGER NOT NULL CHECK (last >= -1),
        total INTEGER NOT NULL,
        machine TEXT NOT NULL DEFAULT 'vending'
    )""",
    """CREATE TABLE IF NOT EXISTS ledger (
        seq INTEGER PRIMARY KEY CHECK (seq >= 0),
        delta INTEGER NOT NULL CHECK (delta BETWEEN -1000 AND 1000),
        stored_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
    )""",
    "CREATE TABLE IF NOT EXISTS opened (at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
    "INSERT OR IGNORE INTO checkpoint (id, last, total) VALUES (1, -1, 0)",
    "INSERT INTO opened DEFAULT VALUES",
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
import itertools


class ResyncRequired(Exception):
    pass


def replay(log, cursor, limit):
    numbers = [seq for seq, _ in log]
    if len(numbers) not in range(1, 129) or any(b - a != 1 for a, b in itertools.pairwise(numbers)):
        raise ValueError("1 to 128 consecutive items are needed")
    if limit not in range(1, 17) or cursor < -1:
        raise ValueError("limit or cursor out of range")
    if cursor + 1 < numbers[0] or cursor > numbers[-1]:
        raise ResyncRequired(cursor)
    return list(itertools.islice((item for item in log if item[0] > cursor), limit))

# %% ack_after_commit
def consume_line(con, line):
    seq, delta = parse_line(line)
    apply_event(con, seq, delta)
    return f"ACK {seq}\n".encode("ascii")

# %% reclamation
import asyncio


async def run_client(host, port, path, *, timeout=5.0, before_ack=None):
    con = open_store(path)
    writer = None
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port, limit=64), timeout)
        (last,) = con.execute("SELECT last FROM checkpoint").fetchone()
        writer.write(f"RESUME {last}\n".encode())
        await asyncio.wait_for(writer.drain(), timeout)
        while True:
            try:
                line = await asyncio.wait_for(reader.readuntil(), timeout)
            except asyncio.IncompleteReadError as end:
                if not end.partial:
                    break
                raise ProtocolError("the last line has no end") from end
            except asyncio.LimitOverrunError as error:
                raise ProtocolError("the line has no end") from error
            ack = consume_line(con, line)
            if before_ack is not None:
                before_ack(int(ack.split()[1]))
            writer.write(ack)
            await asyncio.wait_for(writer.drain(), timeout)
        return con.execute("SELECT last FROM checkpoint").fetchone()[0]
    finally:
        con.close()
        if writer is not None:
            writer.close()
            try:
                await asyncio.wait_for(writer.wait_closed(), timeout)
            except OSError:
                pass
            finally:
                writer.transport.abort()
                await asyncio.sleep(0)

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
