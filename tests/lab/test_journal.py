"""How far a learner has come, in a real kernel: progress, auto-check, the solution, comparing, starting a step anew."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab_kernel import ROOT, Kernel

from graders import registry
from graders.engine.section_writer import section_text
from lab.workspace import starter_of

UNIT = registry.unit("receiver")
STEPS = [step.name for step in UNIT.steps]
FRAMING = section_text(UNIT.reference(), "framing", STEPS)
RETENTION = str(section_text(UNIT.reference(), "retention", STEPS))
WRONG = str(FRAMING).replace("LINE_LIMIT = 64", "LINE_LIMIT = 65")
DEADLINE = 60.0  # seconds


def text(kernel: Kernel, code: str) -> str:
    ran = kernel.run(code)
    assert ran.clean, ran
    return "\n".join([*ran.lines, *(str(shown["text/plain"]) for shown in ran.shown)])


def test_running_a_step_cell_judges_it_and_the_table_says_what_is_next(kernel: Kernel) -> None:
    assert "· framing" in text(kernel, "progress()") and "Next: framing" in text(kernel, "progress()")
    assert "3 of 3" in text(kernel, f"%%step framing\n{FRAMING}")
    table = text(kernel, "progress()")
    assert re.search(r"✓ framing +3 of 3 +passed", table) and "3 of 20. Next: store" in table
    (shown,) = kernel.run("progress()").shown
    assert '<th scope="row" style="text-align: left">framing</th>' in shown["text/html"]
    text(kernel, "auto_check(False)")
    assert "broken" not in text(kernel, f"%%step framing\n{WRONG}")
    assert "~ framing" in text(kernel, "progress()")
    assert "broken" in text(kernel, "auto_check()\ncheck('framing')")
    assert re.search(r"✗ framing +2.\d+ of 3", text(kernel, "progress()"))


def test_a_starter_is_not_judged(kernel: Kernel) -> None:
    assert "broken" not in text(kernel, f"%%step framing\n{starter_of(UNIT, 'framing')}")
    assert "not written yet" in text(kernel, "progress()")


def test_the_solution_is_shown_once_the_step_passes_or_on_giving_up(kernel: Kernel) -> None:
    text(kernel, f"%%step framing\n{WRONG}")
    assert text(kernel, "solution('framing')").startswith("framing does not pass yet.")
    assert text(kernel, "compare('framing')").startswith("framing does not pass yet")
    assert "def parse_line" in text(kernel, "solution('framing', give_up=True)")
    assert "solution seen" in text(kernel, "progress()")
    assert "-LINE_LIMIT = 65" in text(kernel, "compare('framing')")
    text(kernel, f"%%step framing\n{FRAMING}")
    assert "There is no difference." in text(kernel, "compare('framing')")


def test_a_step_begins_anew_and_nothing_is_lost(kernel: Kernel, tmp_path: Path) -> None:
    text(kernel, "auto_check(False)\n")
    text(kernel, f"%%step framing\n{WRONG}")
    said = text(kernel, "reset('framing')")
    (kept,) = tmp_path.glob("client.framing.*.bak.py")
    assert kept.name in said and kept.read_text() == WRONG + "\n"
    assert section_text((tmp_path / "client.py").read_text(), "framing", STEPS) == starter_of(UNIT, "framing")
    assert "is the starter already" in text(kernel, "reset('framing')\nauto_check()")


def test_notes_that_are_damaged_are_no_notes(kernel: Kernel, tmp_path: Path) -> None:
    text(kernel, f"%%step framing\n{FRAMING}")
    for damage in (
        "",
        "[]",
        '{"client.py": 3}',
        '{"client.py": {"framing": {"text": 1, "points": "x"}}}',
        "[" * 10_000,
    ):
        (tmp_path / ".recovery-lab" / "progress.json").write_text(damage)
        assert "… framing" in text(kernel, "progress()") or "~ framing" in text(kernel, "progress()")


def test_what_cannot_be_noted_costs_no_points(kernel: Kernel, tmp_path: Path) -> None:
    text(kernel, f"%%step framing\n{FRAMING}")
    notes = tmp_path / ".recovery-lab" / "progress.json"
    notes.unlink()
    notes.mkdir()
    ran = kernel.run("check('framing')")
    assert ran.clean and ran.value == "3"


# --------------------------------------------------------------------------------------------------- recovery-lab watch


class Terminal:
    """`recovery-lab watch` in a terminal of its own."""

    def __init__(self, file: Path) -> None:
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lab", "watch", str(file)],
            cwd=ROOT,
            env={**os.environ, "TERM": "dumb", "PYTHONPATH": str(ROOT)},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def until(self, words: str) -> str:
        """What is shown up to and with `words`; it is not looked at again."""
        deadline = time.monotonic() + DEADLINE
        while words not in self.shown:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.ours], [], [], left)[0], f"waited for {words!r}:\n{self.shown}"
            self.shown += os.read(self.ours, 1 << 16).decode()
        before, found, self.shown = self.shown.partition(words)
        return before + found

    def press(self, key: str) -> None:
        os.write(self.ours, key.encode())


@contextmanager
def watching(file: Path) -> Iterator[Terminal]:
    terminal = Terminal(file)
    try:
        yield terminal
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.ours)


def test_watch_judges_on_every_save_and_takes_keys(tmp_path: Path) -> None:
    file = tmp_path / "client.py"
    with watching(file) as terminal:
        terminal.until("waiting for")
        file.write_text(f"# %% framing\n{WRONG}\n")
        assert "framing/" in terminal.until("framing, step 1 of 7")
        terminal.press("h")
        terminal.until("Hint 1 of ")
        terminal.press("n")
        terminal.until("framing does not pass yet.")
        replaced = tmp_path / "new.py"
        replaced.write_text(f"# %% framing\n{FRAMING}\n")
        replaced.rename(file)
        terminal.until("framing passes (3 points so far).")
        terminal.press("n")
        terminal.until("store, step 2 of 7")
        terminal.press("l")
        assert re.search(r"✓ framing +3 of 3", terminal.until("Next: store"))
        terminal.press("q")
        assert terminal.process.wait(timeout=DEADLINE) == 0


def test_watch_without_a_terminal_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab", "watch", "client.py"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "recovery-lab: watch needs a terminal; elsewhere use recovery-lab check\n"
