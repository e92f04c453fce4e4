"""`with con:` commits and rolls back."""

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
    con.execute("BEGIN IMMEDIATE")
    with con:  # commits at the end, rolls back on any exception, and also where the commit itself fails
        (last,) = con.execute("SELECT last FROM checkpoint WHERE id = 1").fetchone()
        if seq > last + 1:
            raise Gap(f"{seq} came after {last}")
        if seq <= last:
            (known,) = con.execute("SELECT delta FROM ledger WHERE seq = ?", (seq,)).fetchone()
            if known != delta:
                raise Conflict(f"{seq} was {known}, now {delta}")
            return False
        con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
        con.execute("UPDATE checkpoint SET total = total + ? WHERE id = 1", (delta,))
        if fault is not None:
            fault()
        con.execute("UPDATE checkpoint SET last = ? WHERE id = 1", (seq,))
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
