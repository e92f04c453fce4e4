"""Whatever begins and ends is a context manager."""

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
import contextlib
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


@contextlib.contextmanager
def transaction(con):
    con.execute("BEGIN IMMEDIATE")
    try:
        yield con
        con.execute("COMMIT")
    except BaseException:
        if con.in_transaction:
            con.execute("ROLLBACK")
        raise


def open_store(path):
    with contextlib.ExitStack() as on_failure:
        con = on_failure.enter_context(contextlib.closing(sqlite3.connect(path, isolation_level=None)))
        with transaction(con):
            for statement in TABLES:
                con.execute(statement)
            verify(con)
        on_failure.pop_all()  # from here on the caller closes it
        return con

# %% atomic_apply
class Conflict(Exception):
    pass


class Gap(Exception):
    pass


def apply_event(con, seq, delta, fault=None):
    with transaction(con):
        (last,) = con.execute("SELECT last FROM checkpoint").fetchone()
        if seq > last + 1:
            raise Gap(f"{last + 1} is missing")
        if seq <= last:
            if con.execute("SELECT delta FROM ledger WHERE seq = ?", (seq,)).fetchone() != (delta,):
                raise Conflict(f"{seq} is known with another delta")
            return False
        con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
        con.execute("UPDATE checkpoint SET total = total + ?", (delta,))
        if fault is not None:
            fault()
        con.execute("UPDATE checkpoint SET last = last + 1")
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
def consume_line(con, line):
    seq, delta = parse_line(line)
    apply_event(con, seq, delta)
    return f"ACK {seq}\n".encode("ascii")

# %% reclamation
import asyncio


@contextlib.asynccontextmanager
async def connection(host, port, timeout):
    reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port, limit=64), timeout)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await asyncio.wait_for(writer.wait_closed(), timeout)
        writer.transport.abort()
        await asyncio.sleep(0)


async def lines(reader, timeout):
    while True:
        try:
            yield await asyncio.wait_for(reader.readuntil(b"\n"), timeout)
        except asyncio.LimitOverrunError:
            raise ProtocolError("a line without an end") from None
        except asyncio.IncompleteReadError as end:
            if end.partial:
                raise ProtocolError("an end without a line") from None
            return


async def run_client(host, port, path, *, timeout=5.0, before_ack=None):
    with contextlib.closing(open_store(path)) as con:
        async with connection(host, port, timeout) as (reader, writer):
            writer.write(b"RESUME %d\n" % con.execute("SELECT last FROM checkpoint").fetchone())
            await asyncio.wait_for(writer.drain(), timeout)
            async with contextlib.aclosing(lines(reader, timeout)) as incoming:
                async for line in incoming:
                    ack = consume_line(con, line)
                    if before_ack is not None:
                        before_ack(parse_line(line)[0])
                    writer.write(ack)
                    await asyncio.wait_for(writer.drain(), timeout)
            return con.execute("SELECT last FROM checkpoint").fetchone()[0]

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
