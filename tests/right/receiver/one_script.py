"""The set-up is one script with its own BEGIN and COMMIT."""

# %% framing
class ProtocolError(ValueError):
    pass


def parse_line(line):
    from re import fullmatch

    found = fullmatch(rb"EVENT (0|[1-9]\d*) (0|-?[1-9]\d{0,3})\n", line)
    if found is None or len(line) > 64 or not -1000 <= int(found[2]) <= 1000:
        raise ProtocolError(f"{line!r} is no event")
    return int(found[1]), int(found[2])

# %% store
import sqlite3

SET_UP = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY, delta INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS checkpoint (id INTEGER PRIMARY KEY, last INTEGER NOT NULL, total INTEGER NOT NULL);
INSERT INTO checkpoint (id, last, total) VALUES (1, -1, 0) ON CONFLICT (id) DO NOTHING;
COMMIT;
"""


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
        con.executescript(SET_UP)
        verify(con)
        return con
    except BaseException:
        con.close()
        raise

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
