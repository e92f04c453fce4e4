"""A savepoint inside the transaction, and SQL that decides."""

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
        con.execute("SAVEPOINT event")
        con.execute(
            "INSERT OR IGNORE INTO ledger (seq, delta) SELECT :seq, :delta WHERE :seq <= (SELECT last + 1 FROM checkpoint)",
            {"seq": min(seq, 2**63 - 1), "delta": delta},
        )
        (changed,) = con.execute("SELECT changes()").fetchone()
        (last,) = con.execute("SELECT last FROM checkpoint").fetchone()
        if seq > last + 1:
            raise Gap(seq)
        if not changed:
            if con.execute("SELECT delta FROM ledger WHERE seq = ?", (seq,)).fetchone() != (delta,):
                raise Conflict(seq)
            con.execute("ROLLBACK TO event")
        else:
            con.execute("UPDATE checkpoint SET total = total + ?", (delta,))
            if fault is not None:
                fault()
            con.execute("UPDATE checkpoint SET last = ?", (seq,))
        con.execute("RELEASE event")
        con.execute("COMMIT")
        return bool(changed)
    except BaseException:
        if con.in_transaction:
            con.execute("ROLLBACK")
        raise

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
