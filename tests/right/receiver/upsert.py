"""INSERT … ON CONFLICT decides what is new."""

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
        expected = con.execute("SELECT last + 1 FROM checkpoint WHERE id = 1").fetchone()[0]
        if seq > expected:
            raise Gap(f"expected {expected}, got {seq}")
        inserted = con.execute(
            "INSERT INTO ledger (seq, delta) VALUES (?, ?) ON CONFLICT (seq) DO NOTHING", (seq, delta)
        ).rowcount
        if not inserted:
            if con.execute("SELECT delta FROM ledger WHERE seq = ?", (seq,)).fetchone()[0] != delta:
                raise Conflict(f"two deltas for {seq}")
            con.execute("ROLLBACK")
            return False
        con.execute(
            """INSERT INTO checkpoint (id, last, total) VALUES (1, -1, :delta)
            ON CONFLICT (id) DO UPDATE SET total = total + excluded.total""",
            {"delta": delta},
        )
        if fault is not None:
            fault()
        con.execute(
            """INSERT INTO checkpoint (id, last, total) VALUES (1, :seq, 0)
            ON CONFLICT (id) DO UPDATE SET last = excluded.last""",
            {"seq": seq},
        )
        con.execute("COMMIT")
    except BaseException:
        if con.in_transaction:
            con.execute("ROLLBACK")
        raise
    return True

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
def consume_line(con, line: bytes) -> bytes:
    event = parse_line(line)
    apply_event(con, *event)
    return b" ".join((b"ACK", str(event[0]).encode())) + b"\n"

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
