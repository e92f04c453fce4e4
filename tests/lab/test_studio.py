"""The crash studio's work, without its widget: real kills, real restarts, and what is told of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import pytest

from graders.receiver.ledger import EMPTY, Books, books_after
from lab import studio as studios
from lab.studio import EVENTS, Position, Prediction, Studio, Told, Trouble
from lab.widgets.crash_studio import CrashStudio

REFERENCE = corpus.reference("receiver")
DONE = books_after(EVENTS)


def line_with(text: str, inside: str) -> int:
    """The number of the reference's first line with `text` in the function `inside`."""
    lines = REFERENCE.split("\n")
    begin = next(row for row, line in enumerate(lines) if line.startswith(f"def {inside}("))
    return next(row for row, line in enumerate(lines[begin:], start=begin + 1) if text in line)


COMMIT = line_with('execute("COMMIT")', "apply_event")
ACK = line_with("return b", "consume_line")


class Heard(list[Told]):
    def words(self, kind: str) -> list[str]:
        return [told.words + (" (again)" if told.again else "") for told in self if told.kind == kind]


def studio_of(tmp_path: Path, source: str = REFERENCE) -> tuple[Studio, Heard]:
    heard = Heard()
    return Studio(source, tmp_path / "studio.db", heard.append), heard


def test_a_kill_before_the_commit_leaves_nothing_and_the_next_process_counts_it(tmp_path: Path) -> None:
    studio, heard = studio_of(tmp_path)
    life = studio.run(Position(COMMIT, 2))
    assert (life.cut, life.books) == (True, Books(0, 5, ((0, 5),)))
    assert heard.words("cut") == [f'the power goes out before line {COMMIT}, `con.execute("COMMIT")`: SIGKILL']
    assert heard.words("lost") == []
    assert heard.words("to receiver") == ["EVENT 0 5\\n", "EVENT 1 -2\\n"]
    assert heard.words("to publisher") == ["RESUME -1\\n", "ACK 0\\n"]
    heard.clear()
    life = studio.run()
    assert (life.cut, life.books) == (False, DONE)
    assert heard.words("to publisher")[:2] == ["RESUME 0\\n", "ACK 1\\n"]
    assert heard.words("to receiver")[0] == "EVENT 1 -2\\n (again)"


def test_a_kill_between_commit_and_ack_loses_the_ack_and_the_event_is_counted_once(tmp_path: Path) -> None:
    studio, heard = studio_of(tmp_path)
    life = studio.run(Position(ACK, 2))
    assert (life.cut, life.books) == (True, Books(1, 3, ((0, 5), (1, -2))))
    assert heard.words("lost") == ["ACK 1 never arrives"]
    heard.clear()
    life = studio.run()
    assert life.books == DONE
    assert heard.words("to publisher")[:2] == ["RESUME 1\\n", "ACK 1\\n"]
    assert heard.words("to receiver")[0] == "EVENT 1 -2\\n (again)"
    assert "exit status 0" in heard.words("note")[-2]
    assert heard.words("note")[-1] == f"the next process finds {DONE}"


def test_a_second_crash_while_it_recovers(tmp_path: Path) -> None:
    studio, _ = studio_of(tmp_path)
    studio.run(Position(ACK, 1))
    assert studio.run(Position(ACK, 1)).books == Books(0, 5, ((0, 5),))
    assert studio.run().books == DONE


def test_a_position_that_is_never_reached_is_said(tmp_path: Path) -> None:
    studio, heard = studio_of(tmp_path)
    life = studio.run(Position(ACK, 40))
    assert not life.cut
    assert life.told == f"Line {ACK} did not run the 40th time in this process. The session came to its end."
    assert heard.words("cut") == []


def test_the_store_is_told_at_every_ack(tmp_path: Path) -> None:
    studio, heard = studio_of(tmp_path)
    studio.run()
    acks = [index for index, told in enumerate(heard) if told.words.startswith("ACK")]
    assert [heard[index + 1].lane for index in acks] == ["store"] * len(acks)
    assert heard[acks[0] + 1].words == "another process finds last=0 total=5 ledger={0:+5}"


def test_reset_begins_anew(tmp_path: Path) -> None:
    studio, heard = studio_of(tmp_path)
    studio.run()
    studio.reset()
    assert list(tmp_path.iterdir()) == []
    heard.clear()
    studio.run()
    assert heard.words("to publisher")[0] == "RESUME -1\\n"
    assert heard.words("to receiver")[0] == "EVENT 0 5\\n"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("", "There is no client.py here yet: write the steps first."),
        (REFERENCE.replace("def main():", "def main(:"), "client.py is not Python yet: line "),
        (REFERENCE.split("# %% reconnect")[0], "client.py has no reconnect yet: "),
        ("x = '\0'", "client.py is not Python"),
    ],
)
def test_a_program_that_cannot_run_yet_is_one_sentence(tmp_path: Path, source: str, sentence: str) -> None:
    studio, heard = studio_of(tmp_path, source)
    with pytest.raises(Trouble) as trouble:
        studio.run()
    assert str(trouble.value).startswith(sentence)
    assert heard == [] and "\n" not in str(trouble.value)


def test_a_program_that_fails_is_told_with_its_last_line(tmp_path: Path) -> None:
    studio, _ = studio_of(tmp_path, REFERENCE.replace('b"RESUME %d\\n"', 'b"RESUME %s\\n"'))
    assert "TypeError" in studio.run().told


def test_a_program_that_the_publisher_does_not_understand(tmp_path: Path) -> None:
    studio, _ = studio_of(tmp_path, REFERENCE.replace('b"ACK %d\\n"', 'b"AKC %d\\n"'))
    assert "the receiver sends `ACK 0`, but it sends `AKC 0\\n`" in studio.run().told


def test_an_ack_before_the_commit_is_seen_in_the_store(tmp_path: Path) -> None:
    early = REFERENCE.replace('con.execute("COMMIT")\n        return True', "return True")
    studio, _ = studio_of(tmp_path, early)
    life = studio.run(Position(ACK, 1))
    assert life.books == EMPTY


def test_closing_ends_the_process_that_runs(tmp_path: Path) -> None:
    endless = REFERENCE.replace(
        '    con.execute("BEGIN IMMEDIATE")\n    try:', "    while True:\n        pass\n    try:"
    )
    assert endless != REFERENCE
    studio, _ = studio_of(tmp_path, endless)
    begun = threading.Event()
    studio.tell = lambda told: begun.set() if told.words.startswith("EVENT") else None
    said: list[Trouble] = []

    def work() -> None:
        try:
            studio.run()
        except Trouble as trouble:
            said.append(trouble)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(60)
    studio.close()
    thread.join(60)
    assert [str(trouble) for trouble in said] == ["The studio was closed."]
    with pytest.raises(Trouble):
        studio.run()


def test_a_prediction_is_right_or_it_is_said_what_to_look_at() -> None:
    books = Books(1, 3, ())
    assert Prediction(1, 3).against(books) == "✓ You were right: cursor 1, total 3."
    wrong = Prediction(1, 4).against(books)
    assert wrong == "✗ You said cursor 1, total 4; there is cursor 1, total 3. Look again at: total."
    assert "nothing to compare" in Prediction(1, 4).against(None)


def test_positions_are_looked_at_before_anything_is_run() -> None:
    rows = frozenset({3})
    assert studios.position(3, 2, rows) == Position(3, 2)
    for line, times in ((4, 1), ("3", 1), (3, 0), (3, 51), (3, None)):
        with pytest.raises(Trouble):
            studios.position(line, times, rows)


# --- the widget, without a browser ----------------------------------------------------------------------------------


class Front:
    """A view of the studio: what it is sent, and what it asks for."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.widget = CrashStudio(path)
        self.got: list[dict[str, Any]] = []
        self.news = threading.Condition()
        monkeypatch.setattr(self.widget, "send", self._take)
        self.ask("hello")

    def _take(self, content: dict[str, Any], buffers: Any = None) -> None:
        with self.news:
            self.got.append(json.loads(json.dumps(content)))
            self.news.notify_all()

    def ask(self, kind: str, **more: Any) -> None:
        self.widget._take({"kind": kind, "view": "one", **more})

    def done(self, kind: str, **more: Any) -> dict[str, Any]:
        """Ask for something, and wait until the studio is free again; its state then."""
        del self.got[:]
        self.ask(kind, **more)
        with self.news:
            assert self.news.wait_for(self._is_free, 60), self.got
        return dict(self.got[-1]["state"])

    def _is_free(self) -> bool:
        return bool(self.got) and self.got[-1]["kind"] == "state" and self.got[-1]["state"].get("busy") is False


@pytest.fixture
def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    (tmp_path / "client.py").write_text(REFERENCE, encoding="utf-8")
    front = Front(tmp_path / "client.py", monkeypatch)
    yield front
    front.widget.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "crash studio"]


def test_a_view_is_told_everything_and_then_what_happens(front: Front) -> None:
    everything = front.got[-1]
    assert (everything["kind"], everything["for"], everything["events"]) == ("all", "one", [])
    assert everything["lines"][ACK - 1] == ['    return b"ACK %d\\n" % seq', True]
    state = front.done("kill", line=ACK, times=2, prediction={"last": 0, "total": 5})
    assert (state["after"], state["verdict"][0]) == ("cut", "✗")
    assert front.got[0]["state"]["busy"] is True
    state = front.done("run")
    assert [(row["last"], row["total"]) for row in state["found"]] == [("1", "3"), ("2", "12")]
    front.ask("hello")
    assert len(front.got[-1]["events"]) > 20


def test_one_thing_at_a_time_and_closing_ends_it(front: Front) -> None:
    endless = REFERENCE.replace("def main():", "def main():\n    while True:\n        pass\n\n\ndef unused():")
    front.widget.path.write_text(endless, encoding="utf-8")
    assert "has changed" in front.done("run")["told"]
    front.ask("run")
    front.ask("reset")
    with front.news:
        assert front.news.wait_for(lambda: any(message["kind"] == "event" for message in front.got), 60)
    front.widget.close()
    assert [message for message in front.got if message["kind"] == "clear"] == [{"kind": "clear"}]  # by the first


def test_two_notebooks_do_not_share_the_store(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    front.done("run")
    other = Front(front.widget.path, monkeypatch)
    assert other.done("run")["told"].startswith("Another notebook has a crash studio open")
    assert front.widget.path.with_name("studio.db").exists()
    front.widget.close()
    assert other.done("run")["told"] == "The session came to its end."
    other.widget.close()


def test_nonsense_from_a_view_is_one_sentence_or_nothing(front: Front) -> None:
    assert "whole numbers" in front.done("kill", line=ACK, times=1, prediction={"last": "x"})["told"]
    assert "a statement begins" in front.done("kill", line=1, times=1, prediction=None)["told"]
    count = len(front.got)
    front.ask("nonsense")
    front.widget._take("nonsense")
    assert len(front.got) == count
