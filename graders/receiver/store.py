"""Step `store`: one file that is made once, is never reset, and is whole whenever somebody looks."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from graders.engine import store
from graders.engine.explore import explore
from graders.engine.processes import Job
from graders.engine.program import Place
from graders.engine.rules import Call, Case, Step
from graders.engine.store import Unreadable
from graders.engine.world import World
from graders.receiver.applying import new_chapter
from graders.receiver.interleave import interleave_openers
from graders.receiver.ledger import (
    EMPTY,
    LONG,
    PLAIN_SHAPE,
    TABLES,
    books_after,
    books_of,
    connection,
    found_after_crash,
    look,
    make_events,
    make_store,
    mixed_events,
)
from graders.receiver.probes import OPEN

STEP = Step("store", public=("open_store",))


@STEP.rule(0.5)
def schema(case: Case) -> None:
    """A new file gets `checkpoint` with one row (`id=1, last=-1, total=0`) and an empty `ledger` with the key `seq`."""
    path = case.folder / "store.db"

    def when_open(message: dict[str, Any]) -> None:
        if look(case, path, "while the new store is open") != EMPTY:
            case.fail(f"a new store says {EMPTY}", "see the story", look="the first row of checkpoint")

    opened(case, path, when_open)
    try:
        contents = store.read_live(path, TABLES)
    except Unreadable as error:
        case.fail("the new file can be read", str(error), where=case.lines_with("connect("))
    expect_key(case, contents.tables["ledger"].key, contents.tables["ledger"].columns)
    contents.table("checkpoint").select("id")
    _expect_plain_path(case)


def _expect_plain_path(case: Case) -> None:
    """The path is a file's name, whatever signs stand in it."""
    path = case.new_folder() / AWKWARD_NAME
    new_chapter(case, f"the path is that of a file that is not there yet, {AWKWARD_NAME!r}")
    opened(case, path)
    if not path.is_file():
        found = sorted(other.name for other in path.parent.iterdir() if other.name != case.program.name)
        case.fail(
            f"open_store makes the file {AWKWARD_NAME!r}",
            f"in its folder there is {', '.join(map(repr, found)) or 'no file'} instead",
            "a path put into a `file:` URI as it is: there `#`, `?` and `%` mean something else",
            "what sqlite3.connect is given; pathlib's as_uri() quotes what has to be quoted",
            where=case.lines_with("connect("),
        )


MOST_SHOWN = 1 << 20  # bytes of a file that is no database
AWKWARD_NAME = "stock #1 (50%41) ready?.db"


def expect_key(case: Case, key: tuple[str, ...], columns: dict[str, int]) -> None:
    if key != ("seq",):
        case.fail(
            "seq is the primary key of ledger",
            f"its primary key is {', '.join(key) or 'none'}; its columns are {', '.join(columns)}",
            "the same event could be entered twice",
            "CREATE TABLE ledger",
            where=case.lines_with("TABLE IF NOT EXISTS ledger", "TABLE ledger"),
        )


@STEP.rule(0.5, name="connection")
def connection_mode(case: Case) -> None:
    """The connection has `isolation_level=None`, not the `autocommit=False` mode, and no transaction open."""
    for path in (case.folder / "new.db", case.folder / "old.db"):
        if path.name == "old.db":
            make_store(path, make_events(case, 3))
        facts = opened(case, path)
        where = case.lines_with("connect(")
        if not facts["is_connection"]:
            case.fail(
                "open_store returns a sqlite3.Connection", f"it returned {facts['call']['returned']!r}", where=where
            )
        if facts["isolation_level"] is not None or facts["autocommit"] in ("True", "False"):
            case.fail(
                "isolation_level is None: BEGIN and COMMIT are the program's own",
                f"isolation_level is {facts['isolation_level']!r}, autocommit is {facts['autocommit']}",
                "Python's sqlite3 opens transactions by itself unless it is told not to",
                "the call of sqlite3.connect",
                where=where,
            )
        if facts["in_transaction"]:
            case.fail(
                "no transaction is open when open_store returns",
                "one is open, so nothing that was set up is stored yet, and others are locked out",
                "a BEGIN without its COMMIT",
                "the end of open_store",
                where=case.lines_with("BEGIN"),
            )


@STEP.rule(0.5)
def keeps_rows(case: Case) -> None:
    """Opening an existing store changes none of its rows, whoever made it, and however long its ledger is."""
    stores = [(_own_store(case), "the store that this program made")]
    strict = tuple(statement.replace("INTEGER)", "INTEGER NOT NULL)") for statement in PLAIN_SHAPE)
    untyped = (
        "CREATE TABLE checkpoint (id INTEGER PRIMARY KEY, last, total)",
        "CREATE TABLE ledger (seq PRIMARY KEY, delta)",
    )
    shapes = [(PLAIN_SHAPE, False), (PLAIN_SHAPE, True), (strict, False), (untyped, False)]
    lengths = case.random.sample((1, 5, 200, LONGEST_LEDGER), len(shapes))
    for number, ((shape, wal), length) in enumerate(zip(shapes, lengths, strict=True)):
        path = case.folder / f"other{number}.db"
        make_store(path, mixed_events(case, length), wal=wal, shape=shape)
        stores.append((path, "a store that another program made" + (" in WAL mode" if wal else "")))
    for path, told in stores:
        new_chapter(case)
        before = look(case, path, "before open_store")
        for _ in ("once", "twice"):
            case.story.store(f"it is {told}")
            opened(case, path)
            after = look(case, path, "after open_store")
            if after != before:
                case.fail(
                    f"opening {told} leaves {before}", f"afterwards it is {after}", *ROWS_WRITTEN, where=writes(case)
                )
    _keeps_what_is_strange(case)


LONGEST_LEDGER = 10_500
ROWS_WRITTEN = (
    "the first row is written again at every start, or old rows are cleared away",
    "the statements in open_store that write rows",
)


def writes(case: Case) -> Place | None:
    """Where the program writes rows."""
    return case.lines_with("DROP", "DELETE", "UPDATE", "REPLACE") or case.lines_with("INSERT")


def _own_store(case: Case) -> Path:
    """A store that the program has made, and to which another connection has added a long history."""
    path = case.folder / "own.db"
    opened(case, path)
    look(case, path, "after the first open_store")
    events = mixed_events(case, LONG)
    with connection(path) as con:
        try:
            con.execute("BEGIN")
            for seq, delta in events:
                con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", (seq, delta))
                con.execute("UPDATE checkpoint SET last = ? WHERE id = 1", (seq,))
            con.execute("UPDATE checkpoint SET total = ? WHERE id = 1", (books_after(events).total,))
            con.execute("COMMIT")
        except sqlite3.IntegrityError:  # the learner's own columns and constraints may want more than we know
            if con.in_transaction:
                con.execute("ROLLBACK")
            con.execute("UPDATE checkpoint SET last = 0, total = 7 WHERE id = 1")
            return path
        except sqlite3.Error as error:
            case.fail("another connection can write to the store after open_store", str(error))
    case.story.store(f"another connection adds the events 0..{LONG - 1}")
    found = look(case, path, "after that")
    if found.ledger != tuple(events):
        case.fail(
            f"the ledger keeps all {LONG} rows that were added to it",
            f"it has {len(found.ledger)}",
            "something in the file itself clears old rows away: a trigger that open_store has made",
            "CREATE TRIGGER, and DELETE in it",
            where=case.lines_with("DELETE", "TRIGGER"),
        )
    return path


def _keeps_what_is_strange(case: Case) -> None:
    """Whether these stores are accepted is left open; what is in them stays in any case."""
    events = mixed_events(case, 5)
    total = books_after(events).total
    strange = {
        "a store with a table of somebody else's": (
            "CREATE TABLE sales (day TEXT, sum INTEGER)",
            "INSERT INTO sales VALUES ('1 May', 12)",
        ),
        "a store whose total is not the ledger's sum": (f"UPDATE checkpoint SET total = {total + 7}",),
        "a store whose oldest rows somebody has removed": ("DELETE FROM ledger WHERE seq < 2",),
    }
    for told, statements in strange.items():
        path = case.new_folder() / "store.db"
        make_store(path, events)
        with connection(path) as con:
            for statement in statements:
                con.execute(statement)
        before = snapshot(path)
        new_chapter(case, f"it is {told}")
        call = case.call(case.run(OPEN, {"path": str(path)})["call"])
        case.story.program(f"open_store {'comes back' if call.raised is None else call}")
        if change := lost(before, snapshot(path)):
            case.story.store("afterwards another connection finds other content")
            case.fail(
                f"open_store leaves {told} as it is, whether it opens it or refuses it",
                change,
                "open_store puts in order, or clears away, what is not its own to judge",
                ROWS_WRITTEN[1],
                where=writes(case),
            )


@STEP.rule(0.5, explores=True)
def first_open_killed(case: Case) -> None:
    """A process that dies anywhere inside its first `open_store` leaves a file that the next one opens as new."""
    explore(case, FirstOpen())


class FirstOpen:
    """The first `open_store` of a new file is ended; the next must find, or make, a new store."""

    def life(self, world: World) -> Job:
        return world.case.job(OPEN, {"path": str(world.store)}, folder=world.folder)

    def peer(self, case: Case) -> AbstractContextManager[Any] | None:
        return None

    def tell(self, world: World) -> None:
        world.story.program("opens a file that is not there yet")

    def after_crash(self, world: World) -> Hashable:
        """Whatever is left may be left; the next open_store has to cope with it."""
        try:
            return found_after_crash(world.store)
        except Unreadable as half_made:
            return str(half_made)

    def after_life(self, world: World) -> bool:
        case = world.case
        call = report_of(case, world)
        cause = (
            "tables and first row are made in several transactions, and the next open_store takes half of it for whole"
        )
        look_at = "what open_store does when some of its statements have been done already"
        if call.raised is not None:
            world.story.program(f"open_store {call}")
            case.fail("open_store opens the file as new", f"it {call}", cause, look_at, where=call.place)
        try:
            found = books_of(store.read_live(world.store, TABLES))
        except (Unreadable, store.Locked) as error:
            world.story.store(f"another connection finds: {error}")
            case.fail(f"the store says {EMPTY}", str(error), cause, look_at)
        world.story.store(f"another connection finds {found}")
        if found != EMPTY:
            case.fail(f"the store says {EMPTY}", f"{found}", cause, look_at)
        return True


def report_of(case: Case, world: World) -> Call:
    """The outcome of `open_store` in a life of the program that ran to its end."""
    for message in world.reports:
        if message.get("event") in ("finished", "loaded"):
            outer = case.call(message)
            if outer.raised is not None:
                return outer
            return case.call(outer.returned["call"])
    case.fail("open_store comes back", f"the process ended: {world.ending}", look="calls that end the process")


@STEP.rule(0.5)
def two_openers(case: Case) -> None:
    """Two processes that open the same new file at once both succeed, on one file with one row."""
    interleave_openers(case)


@STEP.rule(0.25)
def refuses(case: Case) -> None:
    """Where set-up fails, an error reaches the caller, the connection is closed, and the file's content is still
    there.
    """
    opened(case, case.folder / "usable.db")
    for told, make in UNUSABLE.items():
        path = make(case.new_folder())
        before = snapshot(path)
        new_chapter(case, f"the path is {told}")
        report = case.run(OPEN, {"path": str(path)})
        call = case.call(report["call"])
        case.story.program(f"open_store {call}")
        if call.raised is None:
            case.fail(
                f"open_store refuses {told}",
                "it came back as if all were well",
                *(TAKEN_FOR_ITS_OWN if told.startswith("a database") else TAKEN_FOR_A_DATABASE),
            )
        if report["left_open"]:
            case.fail(
                f"when open_store refuses {told}, it closes its connection",
                f"{report['left_open']} descriptor of the file is still open while the error is handled",
                "the connection is closed only when all goes well, or left to the garbage collector",
                "a try around everything after sqlite3.connect, with con.close() in it",
                where=call.place,
            )
        if lost(before, snapshot(path)):
            case.story.store("afterwards the content of the file is another")
            case.fail(
                f"what was in the file is still there after open_store refused {told}",
                "the content has changed",
                "the file is removed or its tables are dropped and made anew",
                "calls of os.remove, DROP TABLE and DELETE in open_store",
            )


@STEP.rule(0.25)
def durable_journal(case: Case) -> None:
    """SQLite keeps a journal on disk: with `journal_mode` MEMORY or OFF a kill inside COMMIT tears the file."""
    new, old, wal = (case.folder / name for name in ("new.db", "old.db", "wal.db"))
    make_store(old, make_events(case, 3))
    make_store(wal, make_events(case, 3), wal=True)
    for path, told in ((new, "not there yet"), (old, "an old one"), (wal, "an old one in WAL mode")):
        new_chapter(case, f"the store is {told}")
        facts = case.run(OPEN, {"path": str(path), "traced": True})
        call = case.call(facts["call"])
        case.story.program(f"open_store {'comes back' if call.raised is None else call}")
        if not facts.get("is_connection"):
            if path == new:
                case.fail("open_store opens a new file", f"it {call}", where=call.place)
            continue  # other rules ask whether it opens this store
        mode = str(case.call(facts["journal_mode"]).returned).lower()
        unsafe = mode if mode in UNSAFE else written_without_journal(facts["statements"])
        if unsafe:
            case.fail(
                "PRAGMA journal_mode is delete, truncate, persist or wal whenever open_store writes, and afterwards",
                f"it is {unsafe}" + ("" if mode in UNSAFE else f" while open_store writes, and then {mode}"),
                "without a journal on disk nobody can undo a COMMIT that was only half written",
                "PRAGMA journal_mode",
                where=case.lines_with("journal_mode"),
            )


UNSAFE = ("memory", "off", "none")
SETS_JOURNAL = re.compile(r"\s*PRAGMA\s+(?:main\s*\.\s*)?journal_mode\s*[=(]\s*['\"]?(\w+)", re.IGNORECASE)
WRITES = re.compile(r"\s*(CREATE|INSERT|REPLACE|UPDATE|DELETE|ALTER|DROP)\b", re.IGNORECASE)
ENDS = re.compile(r"\s*(COMMIT|END|ROLLBACK)\b(?!\s+TO)", re.IGNORECASE)


def written_without_journal(statements: Sequence[str]) -> str:
    """The journal mode, if it is no safe one, in which a connection writes. In a transaction that has written, SQLite
    does not change it.
    """
    mode, has_written = "", False
    for statement in statements:
        if ENDS.match(statement):
            has_written = False
        elif WRITES.match(statement):
            if mode in UNSAFE:
                return mode
            has_written = True
        elif (found := SETS_JOURNAL.match(statement)) and not has_written:
            mode = found[1].lower()
    return ""


def opened(case: Case, path: Path, when_open: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """Open the store in a child; it must succeed. Gives back what the probe saw of the connection."""
    with case.start(OPEN, {"path": str(path)}) as child:
        facts: dict[str, Any] = case.result(child, when_open)
    call = case.call(facts["call"])
    case.story.program(f"open_store {'comes back' if call.raised is None else call}")
    if call.raised is not None:
        case.fail("open_store opens the store", f"it {call}", where=call.place)
    return facts


def _garbage(folder: Path) -> Path:
    path = folder / "garbage.db"
    path.write_bytes(b"this is a letter to the vending machine, not a database\n" * 40)
    return path


def _short_note(folder: Path) -> Path:
    path = folder / "short.db"
    path.write_bytes(b"12\n")  # shorter than SQLite's header; a file of one byte counts as empty there
    return path


def _directory(folder: Path) -> Path:
    path = folder / "a-folder.db"
    path.mkdir()
    return path


def _database(*statements: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "other-shape.db"
        with contextlib.closing(sqlite3.connect(path)) as con, con:
            for statement in statements:
                con.execute(statement)
        return path

    return make


TAKEN_FOR_ITS_OWN = (
    "CREATE TABLE IF NOT EXISTS looks at the name only; the columns and the whole key are left to compare",
    "what open_store does with tables that exist already",
)
TAKEN_FOR_A_DATABASE = (
    "what is no database was removed, emptied or passed over before SQLite could refuse it",
    "what open_store does with the path before and after sqlite3.connect",
)
UNUSABLE: dict[str, Callable[[Path], Path]] = {
    "a file that is no database": _garbage,
    "a file of three bytes that is no database": _short_note,
    "a folder": _directory,
    "inside a folder that does not exist": lambda folder: folder / "nowhere" / "store.db",
    "a database whose checkpoint has other columns": _database(
        "CREATE TABLE checkpoint (id INTEGER PRIMARY KEY, position INTEGER)", "INSERT INTO checkpoint VALUES (1, 12)"
    ),
    "a database whose checkpoint has no total": _database(
        "CREATE TABLE checkpoint (id INTEGER PRIMARY KEY, last INTEGER)",
        "INSERT INTO checkpoint VALUES (1, 0)",
        PLAIN_SHAPE[1],
        "INSERT INTO ledger VALUES (0, 5)",
    ),
    "a database whose ledger has no key": _database(
        PLAIN_SHAPE[0],
        "INSERT INTO checkpoint VALUES (1, 0, 5)",
        "CREATE TABLE ledger (seq INTEGER, delta INTEGER)",
        "INSERT INTO ledger VALUES (0, 5)",
    ),
    "a database whose ledger has the key (seq, delta)": _database(
        PLAIN_SHAPE[0],
        "INSERT INTO checkpoint VALUES (1, 0, 5)",
        "CREATE TABLE ledger (seq INTEGER, delta INTEGER, PRIMARY KEY (seq, delta))",
        "INSERT INTO ledger VALUES (0, 5)",
    ),
    "a database whose ledger has no seq": _database(
        PLAIN_SHAPE[0],
        "INSERT INTO checkpoint VALUES (1, 0, 5)",
        "CREATE TABLE ledger (number INTEGER PRIMARY KEY, delta INTEGER)",
        "INSERT INTO ledger VALUES (0, 5)",
    ),
    "a database whose ledger has no delta": _database(
        PLAIN_SHAPE[0],
        "INSERT INTO checkpoint VALUES (1, 0, 5)",
        "CREATE TABLE ledger (seq INTEGER PRIMARY KEY, amount INTEGER)",
        "INSERT INTO ledger VALUES (0, 5)",
    ),
}


def snapshot(path: Path) -> dict[str, object]:
    """What is at the path: the values in each column of a database's tables, else the bytes of the file."""
    if not os.path.lexists(path) or stat.S_ISDIR(path.lstat().st_mode):
        return {"a folder": path.is_dir()}
    try:
        tables = store.read_live(path, (*TABLES, "sales")).tables
    except Unreadable:
        return {"bytes": _bytes(path)}
    return {f"{name}.{column}": table.select(column) for name, table in tables.items() for column in table.columns}


def _bytes(path: Path) -> bytes:
    try:
        return store.read_plain(path, MOST_SHOWN)
    except OSError as error:
        return str(error).encode()


def lost(before: dict[str, object], after: dict[str, object]) -> str:
    """What was there and is not there as it was, or the empty string. The program may have added a column."""
    for name, values in before.items():
        if after.get(name) != values:
            return f"{name} was {values!r}, and is {after.get(name, 'missing')!r}"
    return ""
