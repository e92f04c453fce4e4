"""The store view: cursor, total and ledger of a SQLite file, live, and every state that was seen on the way."""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import traitlets
from IPython.display import display

from lab.store_watch import Moment, StoreWatch
from lab.widgets.base import HERE, LabWidget, has_front_end, show_text

TICK = 0.2  # seconds between two looks
MOST_MOMENTS = 200
SHOWN_ROWS = 8  # of the ledger's end


def show(path: Path) -> None:
    """Show the store at `path`: live where somebody can see it, else in one sentence."""
    if has_front_end():
        display(StoreView(path))  # type: ignore[no-untyped-call]
    else:
        show_text(in_words(path))


def in_words(path: Path) -> str:
    """What the view would show now, in one line."""
    watch = StoreWatch(path)
    try:
        moment = watch.look()
    finally:
        watch.close()
    assert moment is not None  # the first look always sees something
    books = f" {moment.books}." if moment.books else ""
    return f"Store {path.name}:{books} {moment} (In JupyterLab this is a live view.)"


class StoreView(LabWidget):
    """The widget. One thread looks at the file while a view is open; it sends something only when something changed."""

    _esm = HERE / "store_view.js"
    name = traitlets.Unicode().tag(sync=True)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.words = f"A live view of the store {path.name}; it needs JupyterLab."
        self.moments: deque[dict[str, Any]] = deque(maxlen=MOST_MOMENTS)
        self.count = 0
        self._lock = threading.Lock()
        self._end: threading.Event | None = None
        super().__init__(name=path.name)

    def greet(self, view: str) -> None:
        with self._lock:
            self.send({"kind": "all", "for": view, "moments": list(self.moments)})
            if self._end is None:
                self._end = threading.Event()
                threading.Thread(target=self._watch, args=[self._end], name="store view", daemon=True).start()

    def rest(self) -> None:
        with self._lock:
            if self._end is not None:
                self._end.set()
            self._end = None

    def _watch(self, end: threading.Event) -> None:
        watch = StoreWatch(self.path)
        try:
            while not end.is_set():
                moment = watch.look()
                if moment is not None:
                    self._add(moment)
                end.wait(TICK)
        finally:
            watch.close()

    def _add(self, moment: Moment) -> None:
        with self._lock:
            self.count += 1
            shown = as_data(self.count, moment)
            self.moments.append(shown)
            self.send({"kind": "moment", "moment": shown})


def as_data(number: int, moment: Moment) -> dict[str, Any]:
    """A moment for the view. Numbers go as text: a browser rounds those that SQLite can still hold."""
    books = moment.books
    return {
        "number": number,
        "time": time.strftime("%H:%M:%S"),
        "state": moment.state,
        "told": moment.told,
        "writing": moment.writing,
        "last": str(books.last) if books else "",
        "total": str(books.total) if books else "",
        "rows": len(books.ledger) if books else 0,
        "ledger": [[str(seq), f"{delta:+d}"] for seq, delta in books.ledger[-SHOWN_ROWS:]] if books else [],
    }
