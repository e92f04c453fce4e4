"""The crash studio: choose a line of your own program, say what will be left, end the process there, start it again."""

from __future__ import annotations

import atexit
import fcntl
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import traitlets
from IPython.display import display

from graders import judge as judging
from graders.report import crash_map as drawn
from lab import learner_file
from lab.learner_file import FileTrouble
from lab.studio import Life, Prediction, Studio, Told, Trouble, count, position
from lab.widgets.base import HERE, LabWidget, has_front_end, show_text

STORE = "studio.db"
MOST_EVENTS = 300
TAKEN = "Another notebook has a crash studio open in this folder: use that one, or shut its kernel down."
LAST_WAIT = 5.0  # seconds for a process that is ended when the studio closes

_open: list[CrashStudio] = []  # at most one: they would share their store


def show(path: Path) -> None:
    """Show the studio for the program at `path`; its store lies beside it."""
    while _open:
        _open.pop().close()
    if not has_front_end():
        show_text(in_words(path))
        return
    studio = CrashStudio(path)
    _open.append(studio)
    display(studio)  # type: ignore[no-untyped-call]


def in_words(path: Path) -> str:
    return (
        f"Crash studio: in JupyterLab it shows {path.name}, ends its process at a line of your choice, starts it "
        "again, and draws what happens."
    )


class CrashStudio(LabWidget):
    """The widget. One thread at a time does what was asked for, so that the kernel stays free."""

    _esm = HERE / "crash_studio.js"
    name = traitlets.Unicode().tag(sync=True)
    store = traitlets.Unicode(STORE).tag(sync=True)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.words = in_words(path)
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._map = ""
        self._studio: Studio | None = None
        self._owned: IO[str] | None = None  # locked for as long as the store is ours
        self._state: dict[str, Any] = {}
        super().__init__(name=path.name)

    # --- what the views are told ----------------------------------------------------------------------------------

    def greet(self, view: str) -> None:
        with self._lock:
            if self._studio is None:
                self._load()
            self.send({"kind": "all", "for": view, **self._everything()})

    def _everything(self) -> dict[str, Any]:
        lines = self._studio.lines() if self._studio else []
        return {"lines": lines, "state": self._state, "events": list(self._events), "map": self._map}

    def _tell(self, told: Told) -> None:
        with self._lock:
            self._events.append(asdict(told))
            self.send({"kind": "event", "event": self._events[-1]})

    def _now(self, **changes: Any) -> None:
        with self._lock:
            self._state |= changes
            self.send({"kind": "state", "state": self._state})

    # --- what the views ask for -----------------------------------------------------------------------------------

    def asked(self, content: Mapping[str, Any]) -> None:
        actions: dict[Any, Callable[[], None]] = {
            "run": self._run,
            "kill": lambda: self._kill(content),
            "reset": self._reset,
            "map": self._draw_map,
        }
        action = actions.get(content.get("kind"))
        with self._lock:
            if action is None or self._studio is None or self._thread is not None:
                return
            self._now(busy=True, told="At work …", verdict="")
            self._thread = threading.Thread(target=self._do, args=[action], name="crash studio", daemon=True)
            self._thread.start()

    def _do(self, action: Callable[[], None]) -> None:
        atexit.register(self._end)  # a kernel that ends takes the processes with it, and their folder
        try:
            self._own_store()
            if self._read() != self._studio_now().source:
                self._renew()
            else:
                action()
        except (Trouble, FileTrouble) as trouble:
            self._now(told=str(trouble))
        except Exception as error:
            self._now(told=f"The studio itself failed, this is not your mistake: {type(error).__name__}: {error}")
        finally:
            atexit.unregister(self._end)
            with self._lock:
                self._thread = None
                self._now(busy=False)

    def _run(self) -> None:
        self._note("", self._studio_now().run())

    def _kill(self, content: Mapping[str, Any]) -> None:
        studio = self._studio_now()
        at = position(content.get("line"), content.get("times"), studio.program.statement_rows)
        prediction = predicted(content.get("prediction"))
        life = studio.run(at)
        if prediction is None:
            self._note("", life)
        else:
            verdict = prediction.against(life.books) if life.cut else "Your prediction has to wait: nothing was ended."
            self._note(verdict, life)

    def _note(self, verdict: str, life: Life) -> None:
        found = [*self._state["found"], as_row(len(self._state["found"]) + 1, life)]
        self._now(told=life.told, verdict=verdict, after="cut" if life.cut else "ended", found=found[-MOST_EVENTS:])

    def _reset(self) -> None:
        self._begin_anew("Everything is new: an empty store, and a publisher that has sent nothing.")

    def _draw_map(self) -> None:
        try:
            found = judging.crash_map(self._studio_now().source, unit=self._studio_now().unit.name)
        except KeyError as nothing:
            raise Trouble(f"No map yet: {nothing.args[0]}.") from None
        if found.finding is not None and not found.fates:
            raise Trouble(f"No map yet, {found.rule} fails before anything is ended. check() says more.")
        with self._lock:
            self._map = drawn.page(found)
            self.send({"kind": "map", "map": self._map})
        self._now(told="The crash map is below.")

    # --- the program ----------------------------------------------------------------------------------------------

    def _read(self) -> str:
        return learner_file.read(self.path)

    def _studio_now(self) -> Studio:
        assert self._studio is not None  # nobody can ask before a view was greeted
        return self._studio

    def _load(self) -> None:
        """The file as it is now, a new store, and what keeps it from running, if anything does."""
        trouble = ""
        try:
            source = self._read()
        except FileTrouble as error:
            source, trouble = "", str(error)
        self._studio = Studio(source, self.path.with_name(STORE), self._tell)
        self._begin_anew(trouble or self._first_words())

    def _first_words(self) -> str:
        try:
            self._studio_now().check()
        except Trouble as trouble:
            return str(trouble)
        return ""

    def _renew(self) -> None:
        self._load()
        with self._lock:
            self.send({"kind": "lines", "lines": self._studio_now().lines()})
        told = self._state["told"]
        self._now(told=f"{self.path.name} has changed: this is the new text, with an empty store. {told}")

    def _own_store(self) -> None:
        """Keep the studios of other kernels off the store. Raises Trouble where one of them was first."""
        if self._owned is not None:
            return
        folder = self.path.with_name(learner_file.MEMORY)
        folder.mkdir(exist_ok=True)
        owned = open(folder / "studio.lock", "a")  # noqa: SIM115 (closed when the studio is)
        try:
            fcntl.flock(owned, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owned.close()
            raise Trouble(TAKEN) from None
        self._owned = owned
        self._studio_now().reset()  # what another one has left there

    def _begin_anew(self, told: str) -> None:
        try:
            self._own_store()
            self._studio_now().reset()
        except Trouble as trouble:
            told = str(trouble)
        with self._lock:
            self._events.clear()
            self._map = ""
            self.send({"kind": "clear"})
        self._now(told=told, verdict="", after="new", found=[])

    def _end(self) -> None:
        if self._studio is not None:
            self._studio.close()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(LAST_WAIT)

    def close(self) -> None:
        self._end()
        if self._owned is not None:
            self._owned.close()
            self._owned = None
        super().close()


def predicted(data: Any) -> Prediction | None:
    """What the learner has said; None for "I don't know". Raises Trouble for anything else than whole numbers."""
    if data is None:
        return None
    match data:
        case {"last": int(last), "total": int(total)}:
            return Prediction(last, total)
    raise Trouble("A prediction is two whole numbers.")


def as_row(number: int, life: Life) -> dict[str, Any]:
    """A line of the table of what each process has left."""
    at, books = life.wanted, life.books
    how = "came to its end"
    if life.cut and at is not None:
        how = f"killed before line {at.line}, {count(at.times)} time"
    ledger = str(books).partition("ledger=")[2] if books else "cannot be read"
    last, total = (str(books.last), str(books.total)) if books else ("–", "–")
    return {"process": f"{number}", "how": how, "last": last, "total": total, "ledger": ledger}
