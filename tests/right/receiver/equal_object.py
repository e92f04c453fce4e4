"""A state machine reads the line; what it gives back is an object of its own that equals the pair."""

# %% framing
DIGITS = frozenset(b"0123456789")


class ProtocolError(ValueError):
    """Not one of our lines."""


class Event:
    """Equal to the pair (seq, delta), and taken apart like it."""

    def __init__(self, seq, delta):
        self.seq, self.delta = seq, delta

    def __eq__(self, other):
        return (self.seq, self.delta) == other

    def __hash__(self):
        return hash((self.seq, self.delta))

    def __iter__(self):
        yield self.seq
        yield self.delta


def read_number(rest, end, signed):
    sign, byte = 1, next(rest)
    if signed and byte == ord("-"):
        sign, byte = -1, next(rest)
        if byte == ord("0"):
            raise ProtocolError("a sign before 0")
    if byte not in DIGITS:
        raise ProtocolError("a digit is missing")
    number, only_zero = byte - ord("0"), byte == ord("0")
    while (byte := next(rest)) in DIGITS:
        if only_zero:
            raise ProtocolError("a leading zero")
        number = number * 10 + byte - ord("0")
    if byte != end:
        raise ProtocolError("something behind the digits")
    return sign * number


def parse_line(line):
    if len(line) > 64:
        raise ProtocolError("too long")
    rest = iter(line)
    try:
        for wanted in b"EVENT ":
            if next(rest) != wanted:
                raise ProtocolError("another word")
        seq = read_number(rest, ord(" "), signed=False)
        delta = read_number(rest, ord("\n"), signed=True)
    except StopIteration:
        raise ProtocolError("too short") from None
    if next(rest, None) is not None or not -1000 <= delta <= 1000:
        raise ProtocolError("something behind the line, or a delta out of range")
    return Event(seq, delta)


# %% store
import sqlite3

EXPECTED_COLUMNS = {"checkpoint": {"id", "last", "total"}, "ledger": {"seq", "delta"}}
EXPECTED_KEYS = {"checkpoint": ["id"], "ledger": ["seq"]}


def check_shape(con, table):
    """Raise sqlite3.DatabaseError where `table` lacks its expected columns or its expected primary key."""
    columns = con.execute(f"PRAGMA table_info({table})").fetchall()
    names = {name for _, name, *_ in columns}
    key = [name for _, name, _, _, _, position in columns if position]
    if not EXPECTED_COLUMNS[table] <= names or key != EXPECTED_KEYS[table]:
        raise sqlite3.DatabaseError(f"this file has a {table} of another shape; choose another file")


# Every statement is harmless on a store that exists: what is already there stays as it is.
SCHEMA = """
CREATE TABLE IF NOT EXISTS checkpoint (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL, total INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY, delta INTEGER NOT NULL);
INSERT OR IGNORE INTO checkpoint (id, last, total) VALUES (1, -1, 0);
"""


def open_store(path):
    """Open the store at `path`, made first where there is none, and return the connection (isolation_level None).

    Keep every row that is there. On any error close the connection and let the error out. Return with no transaction
    open.
    """
    con = sqlite3.connect(path, isolation_level=None)
    try:
        # One transaction for the whole set-up: a file is new or complete, and two openers take turns.
        con.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA.strip().splitlines():
            con.execute(statement)
        check_shape(con, "checkpoint")
        check_shape(con, "ledger")
        con.execute("COMMIT")
    except BaseException:
        con.close()  # nobody else can: the caller never sees this connection
        raise
    return con


# %% atomic_apply
class Conflict(Exception):
    """A seq that was already processed came back with another delta."""


class Gap(Exception):
    """At least one event before this one is missing."""


def apply_event(con, seq, delta, fault=None):
    """Count one event, all of it or nothing: True if it was new, False if it was counted before.

    Raise Conflict for a known seq with another delta, Gap for a seq that is not next. Call `fault`, if given, after
    the total has changed and before `last` has. On any error roll back and let that same error out.
    """
    # The write lock comes first: a cursor that was read before it could be old by the time we write.
    con.execute("BEGIN IMMEDIATE")
    try:
        (last,) = con.execute("SELECT last FROM checkpoint WHERE id = 1").fetchone()
        if seq > last + 1:
            raise Gap(f"event {seq} came, but {last + 1} is next")
        if seq <= last:
            (known,) = con.execute("SELECT delta FROM ledger WHERE seq = ?", (seq,)).fetchone()
            if known != delta:
                raise Conflict(f"event {seq} was {known} and is now {delta}")
            con.execute("ROLLBACK")
            return False
        con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
        con.execute("UPDATE checkpoint SET total = total + ? WHERE id = 1", (delta,))
        if fault is not None:
            fault()
        con.execute("UPDATE checkpoint SET last = ? WHERE id = 1", (seq,))
        con.execute("COMMIT")
        return True
    except BaseException:  # an interrupt or a cancellation must not leave the transaction open either
        # Ask, do not assume: a full disk has already ended the transaction, a refused commit has not.
        if con.in_transaction:
            con.execute("ROLLBACK")
        raise


# %% retention
class ResyncRequired(Exception):
    """The log no longer holds what this cursor needs: start again from a snapshot."""


LOG_LIMIT = 128
BATCH_LIMIT = 16


def replay(log, cursor, limit):
    """Return the first `limit` items (seq, delta) of `log` that come after `cursor`, in order.

    Raise ValueError for arguments that make no sense, and only then ResyncRequired where the log does not hold what
    comes after `cursor`. `log` stays as it is.
    """
    if not 1 <= len(log) <= LOG_LIMIT:
        raise ValueError(f"a log of 1 to {LOG_LIMIT} items is needed, not {len(log)}")
    if not 1 <= limit <= BATCH_LIMIT:
        raise ValueError(f"limit {limit} is outside 1..{BATCH_LIMIT}")
    if cursor < -1:
        raise ValueError(f"cursor {cursor} is below -1")
    oldest, newest = log[0][0], log[-1][0]
    if [seq for seq, _ in log] != list(range(oldest, oldest + len(log))):
        raise ValueError("the log's items are not consecutive")
    # Both ends matter: too old and the next event is gone, too new and the publisher has lost what we hold.
    if not oldest - 1 <= cursor <= newest:
        raise ResyncRequired(f"cursor {cursor} needs {cursor + 1}, but the log holds {oldest}..{newest}")
    return [(seq, delta) for seq, delta in log if seq > cursor][:limit]


# %% ack_after_commit
def consume_line(con, line):
    """Parse `line`, apply it, and return its receipt as bytes: the word ACK, one space, the seq, one LF.

    A duplicate gets the same receipt again. Errors go to the caller; there is no receipt for them.
    """
    seq, delta = parse_line(line)
    apply_event(con, seq, delta)  # has committed when it returns; new or known, the publisher may forget the event
    return b"ACK %d\n" % seq


# %% reclamation
import asyncio

READ_LIMIT = 64  # bytes that the reader holds before it gives up on a line


def stored_cursor(con):
    """The seq of the last event that the store holds."""
    return con.execute("SELECT last FROM checkpoint WHERE id = 1").fetchone()[0]


async def next_line(reader, timeout):
    """The next line with its LF, or b"" where the publisher closed between two lines.

    A fragment at the end of the stream, or more bytes than the reader's limit without an LF, is a ProtocolError.
    """
    try:
        async with asyncio.timeout(timeout):
            return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise ProtocolError(f"the stream ended inside a line: {end.partial!r}") from None
        return b""
    except asyncio.LimitOverrunError:
        raise ProtocolError(f"more than {READ_LIMIT} bytes without an LF") from None


async def send(writer, line, timeout):
    """Write `line` and wait, at most `timeout` seconds, until the transport has room for more."""
    writer.write(line)
    async with asyncio.timeout(timeout):
        await writer.drain()


async def hang_up(writer, timeout):
    """Close and wait; what the peer does meanwhile changes nothing about the session's result."""
    writer.close()
    try:
        async with asyncio.timeout(timeout):
            await writer.wait_closed()
    except OSError:  # TimeoutError is one too
        writer.transport.abort()
        await asyncio.sleep(0)  # the descriptor is freed in the loop's next turn


async def run_client(host, port, path, *, timeout=5.0, before_ack=None):
    """Run one session and return the stored cursor at its end. `timeout` bounds each wait on the network by itself.

    Open the store, connect, ask for everything after the stored cursor, then consume and acknowledge line by line
    until the publisher closes between two lines. Call `before_ack(seq)`, if given, once the event is committed. On
    every way out, the writer and the store are closed and the first error is the one that the caller sees.
    """
    con = open_store(path)
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port, limit=READ_LIMIT)
        try:
            await send(writer, b"RESUME %d\n" % stored_cursor(con), timeout)
            while line := await next_line(reader, timeout):
                ack = consume_line(con, line)
                if before_ack is not None:
                    before_ack(parse_line(line).seq)
                await send(writer, ack, timeout)
            return stored_cursor(con)
        finally:
            await hang_up(writer, timeout)
    finally:
        con.close()


# %% reconnect
import argparse
import os
import sys


def main():
    """Run one session as the command line says, and return the exit status: 0 after a clean end, else 1.

    The command line is HOST PORT DB [--timeout S] [--exit-before-ack SEQ]. An expected failure is one line on
    standard error that says what failed, without a traceback.
    """
    parser = argparse.ArgumentParser(description="Receive one session of stock events.")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("db", help="the SQLite file that holds cursor, ledger and total")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds for each wait on the network")
    parser.add_argument("--exit-before-ack", type=int, metavar="SEQ", help="lose power before this ACK")
    options = parser.parse_args()

    def before_ack(seq):
        if seq == options.exit_before_ack:
            os._exit(17)  # as close to a power cut as a process gets: no finally, no flush, no goodbye

    session = run_client(options.host, options.port, options.db, timeout=options.timeout, before_ack=before_ack)
    try:
        last = asyncio.run(session)
    except (ProtocolError, Conflict, Gap, OSError, sqlite3.Error) as error:
        print(f"session failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(f"everything up to event {last} is stored and acknowledged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
