"""One class per step; the public names are its methods, instances or partials."""

# %% framing
class ProtocolError(ValueError):
    pass


class LineParser:
    def __init__(self, keyword, limit, greatest):
        self.keyword, self.limit, self.greatest = keyword, limit, greatest

    def __call__(self, line):
        if len(line) <= self.limit and line.isascii():
            match line.decode().split(" "):
                case [self.keyword, seq, delta] if delta.endswith("\n"):
                    numbers = self.number(seq), self.number(delta[:-1])
                    if None not in numbers and numbers[0] >= 0 and abs(numbers[1]) <= self.greatest:
                        return numbers
        raise ProtocolError(f"{line!r} does not follow the grammar")

    @staticmethod
    def number(text):
        digits = text.removeprefix("-")
        return int(text) if digits.isdigit() and str(int(text)) == text else None


parse_line = LineParser("EVENT", 64, 1000)

# %% store
import sqlite3


class Store(sqlite3.Connection):
    SHAPES = {"checkpoint": ("id", {"last", "total"}), "ledger": ("seq", {"delta"})}

    @classmethod
    def open(cls, path):
        con = sqlite3.connect(path, isolation_level=None, factory=cls)
        try:
            con.set_up()
        except BaseException:
            con.close()
            raise
        return con

    def set_up(self):
        self.execute("BEGIN IMMEDIATE")
        for table, (key, values) in self.SHAPES.items():
            columns = ", ".join([f"{key} INTEGER PRIMARY KEY", *sorted(values)])
            self.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
            found = self.execute(f"PRAGMA table_info({table})").fetchall()
            if [row[1] for row in found if row[5]] != [key] or not values <= {row[1] for row in found}:
                raise sqlite3.DatabaseError(f"{table} has another shape")
        self.execute("INSERT OR IGNORE INTO checkpoint (id, last, total) VALUES (1, -1, 0)")
        self.execute("COMMIT")


open_store = Store.open

# %% atomic_apply
class Conflict(Exception):
    pass


class Gap(Exception):
    pass


class Transaction:
    def __init__(self, con):
        self.con = con

    def __enter__(self):
        self.con.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self.con.execute("COMMIT")
        finally:
            if self.con.in_transaction:
                self.con.execute("ROLLBACK")

    @property
    def last(self):
        return self.con.execute("SELECT last FROM checkpoint WHERE id = 1").fetchone()[0]

    def known(self, seq):
        return self.con.execute("SELECT delta FROM ledger WHERE seq = ?", (seq,)).fetchone()[0]

    def add(self, seq, delta, fault):
        self.con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
        self.con.execute("UPDATE checkpoint SET total = total + ? WHERE id = 1", (delta,))
        fault()
        self.con.execute("UPDATE checkpoint SET last = ? WHERE id = 1", (seq,))

    @classmethod
    def apply(cls, con, seq, delta, fault=None):
        with cls(con) as books:
            last = books.last
            if seq > last + 1:
                raise Gap(seq)
            if seq <= last:
                if books.known(seq) != delta:
                    raise Conflict(seq)
                return False
            books.add(seq, delta, fault or (lambda: None))
        return True


apply_event = Transaction.apply

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


class Publisher:
    read = staticmethod(replay)


replay = Publisher.read

# %% ack_after_commit
class Acknowledge:
    form = b"ACK %d\n"

    def __call__(self, con, line):
        seq, delta = parse_line(line)
        apply_event(con, seq, delta)
        return self.form % seq


consume_line = Acknowledge()

# %% reclamation
import asyncio


class Session:
    def __init__(self, con, timeout, before_ack):
        self.con, self.timeout, self.before_ack = con, timeout, before_ack
        self.reader = self.writer = None

    async def patiently(self, waiting):
        return await asyncio.wait_for(waiting, self.timeout)

    @property
    def last(self):
        return self.con.execute("SELECT last FROM checkpoint WHERE id = 1").fetchone()[0]

    async def say(self, line):
        self.writer.write(line)
        await self.patiently(self.writer.drain())

    async def hear(self):
        try:
            return await self.patiently(self.reader.readuntil(b"\n"))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise ProtocolError("a fragment at the end") from error
        except asyncio.LimitOverrunError as error:
            raise ProtocolError("an endless line") from error

    async def run(self, host, port):
        self.reader, self.writer = await self.patiently(asyncio.open_connection(host, port, limit=64))
        await self.say(b"RESUME %d\n" % self.last)
        while line := await self.hear():
            ack = consume_line(self.con, line)
            if self.before_ack is not None:
                self.before_ack(parse_line(line)[0])
            await self.say(ack)
        return self.last

    async def close(self):
        self.con.close()
        if self.writer is not None:
            self.writer.close()
            try:
                await self.patiently(self.writer.wait_closed())
            except OSError:
                self.writer.transport.abort()
                await asyncio.sleep(0)

    @classmethod
    async def client(cls, host, port, path, *, timeout=5.0, before_ack=None):
        session = cls(open_store(path), timeout, before_ack)
        try:
            return await session.run(host, port)
        finally:
            await session.close()


run_client = Session.client

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
