"""Step `store`: one file that is made once, is never reset, and is whole whenever somebody looks."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from graders.engine import store
from graders.engine.explore import World, explore
from graders.engine.processes import Job
from graders.engine.rules import Call, Case, Step
from graders.engine.store import Unreadable
from graders.receiver.interleave import interleave_openers
from graders.receiver.ledger import (
    EMPTY,
    PLAIN_SHAPE,
    TABLES,
    books_of,
    connection,
    look,
    make_events,
    make_store,
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
    own = case.folder / "own.db"
    opened(case, own)
    progress = make_events(case, 1)
    look(case, own, "after the first open_store")
    with connection(own) as con:
        try:
            con.execute("UPDATE checkpoint SET last = 0, total = ? WHERE id = 1", (progress[0][1],))
            with contextlib.suppress(sqlite3.IntegrityError):  # the learner's own columns may want more than we know
                con.execute("INSERT INTO ledger (seq, delta) VALUES (?, ?)", progress[0])
        except sqlite3.Error as error:
            case.fail("another connection can write to the store after open_store", str(error))
    stores: list[tuple[Path, str]] = [(own, "the store that this program made")]
    strict = tuple(statement.replace("INTEGER)", "INTEGER NOT NULL)") for statement in PLAIN_SHAPE)
    untyped = (
        "CREATE TABLE checkpoint (id INTEGER PRIMARY KEY, last, total)",
        "CREATE TABLE ledger (seq PRIMARY KEY, delta)",
    )
    for number, (shape, wal) in enumerate(
        [(PLAIN_SHAPE, False), (PLAIN_SHAPE, True), (strict, False), (untyped, False)]
    ):
        path = case.folder / f"other{number}.db"
        make_store(path, make_events(case, case.random.choice((1, 5, 200))), wal=wal, shape=shape)
        stores.append((path, "a store that another program made" + (" in WAL mode" if wal else "")))
    for path, told in stores:
        before = look(case, path, "before open_store")
        for _ in ("once", "twice"):
            case.story.store(f"it is {told}")
            opened(case, path)
            after = look(case, path, "after open_store")
            if after != before:
                case.fail(
                    f"opening {told} leaves {before}",
                    f"afterwards it is {after}",
                    "the first row is written again at every start, or old rows are cleared away",
                    "the statements in open_store that write rows",
                    where=case.lines_with("INSERT", "REPLACE", "UPDATE", "DELETE"),
                )


@STEP.rule(0.5)
def first_open_killed(case: Case) -> None:
    """A process that dies anywhere inside its first `open_store` leaves a file that the next one opens as new."""
    explore(case, FirstOpen())


class FirstOpen:
    """The first `open_store` of a new file is ended; the next must find, or make, a new store."""

    def first(self, world: World) -> Job:
        return world.case.job(OPEN, {"path": str(world.store)}, folder=world.folder)

    again = first

    def peer(self) -> AbstractContextManager[Any] | None:
        return None

    def tell(self, world: World) -> None:
        world.story.receiver("opens a file that is not there yet")

    def after_crash(self, world: World) -> None:
        """Whatever is left may be left; the next open_store has to cope with it."""

    def after_recovery(self, world: World) -> None:
        case = world.case
        call = report_of(case, world)
        cause = (
            "tables and first row are made in several transactions, and the next open_store takes half of it for whole"
        )
        look_at = "what open_store does when some of its statements have been done already"
        if call.raised is not None:
            world.story.receiver(f"open_store {call}")
            case.fail("open_store opens the file as new", f"it {call}", cause, look_at, where=call.place)
        try:
            found = books_of(store.read_live(world.store, TABLES))
        except (Unreadable, store.Locked) as error:
            world.story.store(f"another connection finds: {error}")
            case.fail(f"the store says {EMPTY}", str(error), cause, look_at)
        world.story.store(f"another connection finds {found}")
        if found != EMPTY:
            case.fail(f"the store says {EMPTY}", f"{found}", cause, look_at)


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
        case.story.store(f"the path is {told}")
        report = case.run(OPEN, {"path": str(path)})
        call = case.call(report["call"])
        case.story.receiver(f"open_store {call}")
        if call.raised is None:
            case.fail(
                f"open_store refuses {told}",
                "it came back as if all were well",
                "CREATE TABLE IF NOT EXISTS looks at the name only, not at the columns or the key",
                "what open_store does with tables that exist already",
            )
        if report["left_open"]:
            case.fail(
                f"when open_store refuses {told}, it closes its connection",
                f"{report['left_open']} descriptor of the file is still open while the error is handled",
                "the connection is closed only when all goes well, or left to the garbage collector",
                "a try around everything after sqlite3.connect, with con.close() in it",
                where=call.place,
            )
        if snapshot(path) != before:
            case.fail(
                f"what was in the file is still there after open_store refused {told}",
                "the content has changed",
                "the file is removed or its tables are dropped and made anew",
                "calls of os.remove, DROP TABLE and DELETE in open_store",
            )


@STEP.rule(0.25)
def durable_journal(case: Case) -> None:
    """SQLite keeps a journal on disk: with `journal_mode` MEMORY or OFF a kill inside COMMIT tears the file."""
    facts = opened(case, case.folder / "store.db")
    mode = str(case.call(facts["journal_mode"]).returned).lower()
    if mode in ("memory", "off", "none"):
        case.fail(
            "PRAGMA journal_mode is delete, truncate, persist or wal",
            f"it is {mode}",
            "without a journal on disk nobody can undo a COMMIT that was only half written",
            "PRAGMA journal_mode",
            where=case.lines_with("journal_mode"),
        )


def opened(case: Case, path: Path, when_open: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """Open the store in a child; it must succeed. Gives back what the probe saw of the connection."""
    with case.start(OPEN, {"path": str(path)}) as child:
        facts: dict[str, Any] = case.result(child, when_open)
    call = case.call(facts["call"])
    case.story.receiver(f"open_store {'comes back' if call.raised is None else call}")
    if call.raised is not None:
        case.fail("open_store opens the store", f"it {call}", where=call.place)
    return facts


def _garbage(folder: Path) -> Path:
    path = folder / "garbage.db"
    path.write_bytes(b"this is a letter to the vending machine, not a database\n" * 40)
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


UNUSABLE: dict[str, Callable[[Path], Path]] = {
    "a file that is no database": _garbage,
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
    "a database whose ledger has no delta": _database(
        PLAIN_SHAPE[0],
        "INSERT INTO checkpoint VALUES (1, 0, 5)",
        "CREATE TABLE ledger (seq INTEGER PRIMARY KEY, amount INTEGER)",
        "INSERT INTO ledger VALUES (0, 5)",
    ),
}


def snapshot(path: Path) -> object:
    """What is at the path: the bytes of a file that is no database, else the rows of its tables."""
    if not path.is_file():
        return path.is_dir()
    try:
        return store.read_live(path, TABLES).tables
    except Unreadable:
        return path.read_bytes()
