"""Nothing is imported before it is needed."""

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
def open_store(path):
    import sqlite3

    con = sqlite3.connect(path, isolation_level=None, cached_statements=0)
    try:
        con.execute("BEGIN IMMEDIATE")
        con.execute("CREATE TABLE IF NOT EXISTS checkpoint (id INTEGER PRIMARY KEY, last INTEGER, total INTEGER)")
        con.execute("CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY, delta INTEGER)")
        con.execute("INSERT OR IGNORE INTO checkpoint (id, last, total) VALUES (1, -1, 0)")
        for table, key, others in (("checkpoint", "id", {"last", "total"}), ("ledger", "seq", {"delta"})):
            described = con.execute(f"PRAGMA main.table_info({table})").fetchall()
            if not others <= {row[1] for row in described} or [row[1] for row in described if row[5]] != [key]:
                raise sqlite3.IntegrityError(f"another {table} is in the way")
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
def consume_line(con, line: bytes) -> bytes:
    event = parse_line(line)
    apply_event(con, *event)
    return b" ".join((b"ACK", str(event[0]).encode())) + b"\n"

# %% reclamation
async def close(writer, timeout):
    import asyncio

    writer.close()
    try:
        async with asyncio.timeout(timeout):
            await writer.wait_closed()
    except (TimeoutError, ConnectionError):
        writer.transport.abort()
        await asyncio.sleep(0)


async def read_line(reader, timeout):
    import asyncio

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
    import asyncio

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
    import asyncio

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
def main():
    import asyncio
    import os
    import sqlite3
    import sys

    host, port, db, *rest = sys.argv[1:]
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    crash = options.get("--exit-before-ack")

    def before_ack(seq):
        if str(seq) == crash:
            os._exit(17)

    timeout = float(options.get("--timeout", "5"))
    try:
        asyncio.run(run_client(host, int(port), db, timeout=timeout, before_ack=before_ack if crash else None))
    except (OSError, sqlite3.Error, ProtocolError, Conflict, Gap) as error:
        sys.stderr.write(f"{error!r}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
