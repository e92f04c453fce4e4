"""The store view without a browser: what it sees of a store that another process writes, and what it sends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from starts import DEADLINE, ROOT

from graders.engine.store import Unreadable
from graders.receiver.ledger import Books, make_store
from lab.store_watch import Moment, StoreWatch, covers, write_is_open
from lab.widgets import store_view
from lab.widgets.store_view import MOST_MOMENTS, StoreView

WRITER = """
import sqlite3, sys
con = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    con.execute(line).fetchall()
    print("done", flush=True)
"""
COUNT_ONE = (
    "INSERT INTO ledger (seq, delta) VALUES (1, 5)",
    "UPDATE checkpoint SET total = total + 5, last = 1 WHERE id = 1",
)


class Writer:
    """Another process with the store open; it runs one statement at a time."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, *statements: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        for statement in statements:
            self.process.stdin.write(statement + "\n")
            self.process.stdin.flush()
            assert select.select([self.process.stdout], [], [], DEADLINE)[0], f"no answer to {statement}"
            assert self.process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a store?.db"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    make_store(path, [(0, 7)])
    writer = Writer(path)
    yield writer
    writer.kill()


@pytest.fixture
def watch(path: Path) -> Iterator[StoreWatch]:
    watch = StoreWatch(path)
    yield watch
    watch.close()


def looked(watch: StoreWatch) -> Moment:
    moment = watch.look()
    assert moment is not None
    return moment


ONE = Books(0, 7, ((0, 7),))
TWO = Books(1, 12, ((0, 7), (1, 5)))


@pytest.mark.parametrize("wal", [False, True], ids=["journal", "wal"])
def test_a_commit_of_another_process_is_seen_and_what_comes_before_it_is_not(
    watch: StoreWatch, writer: Writer, wal: bool
) -> None:
    if wal:
        writer("PRAGMA journal_mode=WAL")
    assert looked(watch).books == ONE
    assert watch.look() is None
    writer("BEGIN IMMEDIATE")
    opened = looked(watch)
    assert (opened.books, opened.writing) == (ONE, True)
    writer(*COUNT_ONE)
    assert watch.look() is None, "nobody else sees what is in a transaction"
    writer("COMMIT")
    committed = looked(watch)
    assert (committed.books, committed.writing, committed.told) == (TWO, False, "The books balance.")
    assert watch.look() is None


def test_a_rollback_leaves_what_was_there(watch: StoreWatch, writer: Writer) -> None:
    looked(watch)
    writer("BEGIN IMMEDIATE", *COUNT_ONE)
    assert looked(watch).writing
    writer("ROLLBACK")
    assert looked(watch) == Moment("readable", "The books balance.", ONE)


def test_books_that_do_not_balance_are_said(watch: StoreWatch, writer: Writer) -> None:
    writer(COUNT_ONE[0])
    assert looked(watch).told == "Last is 0, but the ledger's greatest seq is 1."


def test_a_lock_that_keeps_readers_out_is_said(watch: StoreWatch, writer: Writer) -> None:
    looked(watch)
    writer("BEGIN EXCLUSIVE")
    assert looked(watch).state == "locked"
    writer("COMMIT")
    assert looked(watch).books == ONE


def test_a_writer_that_dies_in_a_transaction_leaves_a_journal_and_that_is_said(
    watch: StoreWatch, writer: Writer, path: Path
) -> None:
    looked(watch)
    big = "CREATE TABLE big AS WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 3000) "
    writer("PRAGMA cache_size=1", "BEGIN IMMEDIATE", *COUNT_ONE, big + "SELECT hex(randomblob(50)) FROM k")
    writer.kill()
    moment = looked(watch)
    assert (moment.state, moment.writing) == ("unfinished", False)
    with contextlib.closing(sqlite3.connect(path)) as con:  # the next one to open it for writing
        con.execute("SELECT * FROM ledger").fetchall()
    assert looked(watch).books == ONE


def test_missing_appearing_replaced_and_gone_again(watch: StoreWatch, path: Path) -> None:
    assert looked(watch).told == f"There is no such file: {path.name}."
    path.touch()
    assert looked(watch).state == "empty"
    path.unlink()
    looked(watch)
    make_store(path, [(0, 7)])
    assert looked(watch).books == ONE
    make_store(path.with_name("other"), [(0, 7), (1, 5)])
    os.replace(path.with_name("other"), path)
    assert looked(watch).books == TWO
    path.unlink()
    assert looked(watch).state == "missing"
    path.mkdir()
    assert looked(watch).state == "unreadable"


def test_what_is_no_store_is_said(watch: StoreWatch, path: Path) -> None:
    path.write_bytes(b"This is no database, but long enough to be taken for one." * 30)
    assert looked(watch).told == "Cannot be read as a store: file is not a database."
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as con:
        con.execute("CREATE TABLE other (x)")
        assert looked(watch).told == "The file has no checkpoint and no ledger yet."
        con.execute("CREATE TABLE checkpoint (id INTEGER PRIMARY KEY, last, total)")
        con.execute("CREATE TABLE ledger (seq INTEGER PRIMARY KEY, delta)")
        con.execute("INSERT INTO checkpoint VALUES (1, 0, '<b>many</b>')")
        con.commit()
    assert "no integer: ['<b>many</b>']" in looked(watch).told


def test_a_read_that_failed_is_tried_again(watch: StoreWatch, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_store(path, [(0, 7)])
    with monkeypatch.context() as slow:
        slow.setattr("lab.store_watch.store.read_live", interrupted)
        assert looked(watch).told == "Cannot be read as a store: interrupted."
    assert looked(watch).books == ONE


def interrupted(*_: Any) -> Any:
    raise Unreadable("interrupted")


def test_a_store_that_is_damaged_in_place_is_noticed(watch: StoreWatch, path: Path) -> None:
    make_store(path, [(0, 7)])
    looked(watch)
    with open(path, "r+b") as file:
        file.write(b"\xff" * 4096)
    assert looked(watch).state == "unreadable"


def test_locks_are_found_in_what_linux_lists() -> None:
    line = "1: POSIX  ADVISORY  WRITE 18690 fe:00:2556022 1073741824 1073742335"
    assert covers(line, "2556022", 1073741825)
    assert not covers(line, "556022", 1073741825)
    assert not covers(line.replace("WRITE", "READ "), "2556022", 1073741825)
    assert not covers(line.replace("1: ", "1: -> "), "2556022", 1073741825), "somebody only waits for it"
    assert covers("9: OFDLCK ADVISORY  WRITE -1 fe:00:7 0 EOF", "7", 120)


def test_without_such_a_list_a_journal_is_the_sign(writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.store_watch.LOCKS", Path("/nowhere"))
    assert not write_is_open(path)
    writer("BEGIN IMMEDIATE", *COUNT_ONE)
    assert write_is_open(path)
    writer("COMMIT")
    assert not write_is_open(path)


# --- the widget -----------------------------------------------------------------------------------------------------


class Front:
    """What a browser would get, and what it says."""

    def __init__(self, view: StoreView, monkeypatch: pytest.MonkeyPatch) -> None:
        self.view = view
        self.got: list[dict[str, Any]] = []
        self.news = threading.Condition()
        monkeypatch.setattr(view, "send", self._take)

    def _take(self, content: dict[str, Any], buffers: Any = None) -> None:
        with self.news:
            self.got.append(json.loads(json.dumps(content)))
            self.news.notify_all()

    def wait(self, count: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: len(self.got) >= count, DEADLINE), self.got

    def say(self, kind: str, name: str = "one") -> None:
        self.view._take({"kind": kind, "view": name})


def watching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "store view"]


@pytest.fixture
def view(path: Path) -> Iterator[StoreView]:
    view = StoreView(path)
    yield view
    threads = watching()
    view.close()
    for thread in threads:
        thread.join(DEADLINE)
    assert not watching()


def test_it_works_from_the_first_hello_to_the_last_goodbye(view: StoreView, monkeypatch: pytest.MonkeyPatch) -> None:
    front = Front(view, monkeypatch)
    assert not watching()
    front.say("hello")
    front.say("hello", "two")
    assert len(watching()) == 1
    front.say("bye")
    assert len(watching()) == 1
    (thread,) = watching()
    front.say("bye", "two")
    thread.join(DEADLINE)
    assert not watching()


def test_nothing_is_sent_while_nothing_changes(
    view: StoreView, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_view, "TICK", 0.001)
    looks = count_looks(monkeypatch)
    front = Front(view, monkeypatch)
    front.say("hello")
    front.wait(2)
    assert looks(50)
    assert [message["kind"] for message in front.got] == ["all", "moment"]
    writer("BEGIN IMMEDIATE", *COUNT_ONE, "COMMIT")
    with front.news:
        assert front.news.wait_for(lambda: front.got[-1]["moment"]["last"] == "1", DEADLINE)
    assert front.got[-1]["moment"]["ledger"] == [["0", "+7"], ["1", "+5"]]
    front.say("hello", "two")
    again = front.got[-1]
    assert again["for"] == "two"
    assert again["moments"][0]["last"] == "0"


def count_looks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that waits for so many more looks."""
    real, turn = StoreWatch.look, threading.Semaphore(0)

    def look(self: StoreWatch) -> Moment | None:
        turn.release()
        return real(self)

    monkeypatch.setattr(StoreWatch, "look", look)
    return lambda count: all(turn.acquire(timeout=DEADLINE) for _ in range(count))


def test_the_history_is_bounded(view: StoreView, monkeypatch: pytest.MonkeyPatch) -> None:
    front = Front(view, monkeypatch)
    for seq in range(MOST_MOMENTS + 50):
        view._add(Moment("readable", "The books balance.", Books(seq, 0, ())))
    assert len(view.moments) == MOST_MOMENTS
    assert view.moments[0]["number"] == 51
    assert len(front.got) == MOST_MOMENTS + 50


def test_large_numbers_come_whole_and_only_the_ledgers_end_is_sent() -> None:
    books = Books(2**62, -(2**62), tuple((seq, 1) for seq in range(1000)))
    data = store_view.as_data(1, Moment("readable", "", books))
    assert (data["last"], data["total"], data["rows"]) == (str(2**62), str(-(2**62)), 1000)
    assert data["ledger"][-1] == ["999", "+1"] and len(data["ledger"]) == store_view.SHOWN_ROWS


def test_where_somebody_sees_it_it_is_a_widget_with_a_text_beside_it(view: StoreView) -> None:
    data, _ = view._repr_mimebundle_()
    assert data["text/plain"] == f"A live view of the store {view.name}; it needs JupyterLab."
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id


def test_the_browsers_half_of_each_widget_lies_beside_it_and_needs_nothing_from_elsewhere() -> None:
    folder = ROOT / "lab" / "widgets"
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.js")}
    assert set(scripts) == {path.stem for path in folder.glob("*.py")} - {"__init__", "base"}
    for text in (*scripts.values(), (folder / "widgets.css").read_text(encoding="utf-8")):
        assert not any(word in text for word in ("://", "import ", "@import", "url(", "innerHTML", "eval("))


def test_without_a_browser_it_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nbgrader runs notebooks: text only, nothing on standard error, and no thread."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    make_store(tmp_path / "store.db", [(0, 7)])
    threads = (
        "import threading; print([t.name for t in threading.enumerate() if t.name.startswith(('store', 'crash'))])"
    )
    cells = ["%load_ext lab", 'watch_store()\nwatch_store("not there.db")', "crash_studio()", threads]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=DEADLINE, resources={"metadata": {"path": str(tmp_path)}}).execute()
    first, second = notebook.cells[1].outputs
    assert set(first["data"]) == set(second["data"]) == {"text/plain"}
    assert "last=0 total=7 ledger={0:+7}. The books balance." in first["data"]["text/plain"]
    assert "There is no such file: not there.db." in second["data"]["text/plain"]
    (studio,) = notebook.cells[2].outputs
    assert set(studio["data"]) == {"text/plain"} and studio["data"]["text/plain"].count("\n") == 0
    (printed,) = notebook.cells[3].outputs
    assert printed["text"] == "[]\n"
    assert "widgets" not in notebook.metadata
