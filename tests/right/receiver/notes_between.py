"""Markdown cells and cells without a name stand between the steps."""

# %% [markdown]
# ## Now framing
# Some thoughts that are not code: `raise ProtocolError`.

# %%
scratch = []

# %% framing
class ProtocolError(ValueError):
    pass


def parse_line(line):
    from re import fullmatch

    found = fullmatch(rb"EVENT (0|[1-9]\d*) (0|-?[1-9]\d{0,3})\n", line)
    if found is None or len(line) > 64 or not -1000 <= int(found[2]) <= 1000:
        raise ProtocolError(f"{line!r} is no event")
    return int(found[1]), int(found[2])

# %% [markdown]
# ## Now store
# Some thoughts that are not code: `raise ProtocolError`.

# %%
print_nothing = 'store'

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

# %% [markdown]
# ## Now atomic_apply
# Some thoughts that are not code: `raise ProtocolError`.

# %%
print_nothing = 'atomic_apply'

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

# %% [markdown]
# ## Now retention
# Some thoughts that are not code: `raise ProtocolError`.

# %%
print_nothing = 'retention'

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

# %% [markdown]
# ## Now ack_after_commit
# Some thoughts that are not code: `raise ProtocolError`.

# %%
print_nothing = 'ack_after_commit'

# %% ack_after_commit
def consume_line(con, line: bytes) -> bytes:
    event = parse_line(line)
    apply_event(con, *event)
    return b" ".join((b"ACK", str(event[0]).encode())) + b"\n"

# %% [markdown]
# ## Now reclamation
# Some thoughts that are not code: `raise ProtocolError`.

# %%
print_nothing = 'reclamation'

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

# %% [markdown]
# ## Now reconnect
# Some thoughts that are not code: `raise ProtocolError`.

# %%
print_nothing = 'reconnect'

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
