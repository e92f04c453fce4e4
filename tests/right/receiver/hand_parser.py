"""The line is read byte by byte, without regular expressions."""

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
