"""Run `recovery-lab grade` again and again, each time ended with SIGKILL at a random moment: COURSE SEED KILLS LIFE.

Where a run comes to its end by itself, everything is checked, and then every submission is changed a little. Prints how
many runs there were of either kind. A process of its own, because it forks: what the command imports is there already.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from classes import STEPS
from nbgrader_run import UNIT, read

import graders.course.batch
import lab.cli_grade
from graders import registry
from graders.course.gradebook import Gradebook
from graders.engine import lifeline
from lab.cli import main as recovery_lab

POINTS = {step.name: step.max_score for step in registry.unit(UNIT).steps}
LONGEST_RUN = 200.0  # seconds; nothing but a hang takes so long
LONGEST_END = 20.0  # seconds until what a killed run has started is gone, too


def main(course: Path, seed: int, kills: int, life: float) -> None:
    lifeline.adopt_orphans()  # what a killed run leaves behind becomes a child of this process
    moments = random.Random(seed)
    killed = finished = 0
    while killed < kills:
        if runs_to_its_end(course, moments.uniform(0, life)):
            check(course)
            disturb(course, finished)
            finished += 1
        else:
            killed += 1
            look_at_what_is_left(course)
    if not runs_to_its_end(course, LONGEST_RUN):
        raise SystemExit(f"the last run has not ended after {LONGEST_RUN:g} s")
    check(course)
    print(killed, finished + 1)


def runs_to_its_end(course: Path, life: float) -> bool:
    """Start the command; True where it ended by itself within `life` seconds, which it has to do well."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        recovery_lab(["grade", UNIT, "--course", str(course), "--workers", "2"])
        os._exit(1)  # it exits by itself
    process = os.pidfd_open(pid)
    try:
        by_itself = bool(select.select([process], [], [], life)[0])
        if not by_itself:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(process)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"the command ended with {code}")
    wait_for_the_others()
    return code == 0


def wait_for_the_others() -> None:
    """Workers, their sandboxes, and all below end with the command."""
    deadline = time.monotonic() + LONGEST_END
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > deadline:
                raise SystemExit(f"{LONGEST_END:g} s after the command, processes of it still run")
            time.sleep(0.01)


def look_at_what_is_left(course: Path) -> None:
    """Whatever was going on: the gradebook is sound, and a record speaks only of grades that are whole."""
    with closing(sqlite3.connect(course / "gradebook.db")) as book:
        assert book.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    for record in (course / ".graded" / UNIT).glob("*.json"):
        check_student(course, record.stem)


def check(course: Path) -> None:
    """Everybody is graded, once and wholly."""
    students = sorted(path.name for path in (course / "submitted").iterdir())
    assert sorted(path.stem for path in (course / ".graded" / UNIT).glob("*.json")) == students
    with closing(sqlite3.connect(course / "gradebook.db")) as book:
        rows = book.execute("SELECT student_id, COUNT(*) FROM submitted_assignment GROUP BY student_id").fetchall()
    assert sorted(rows) == [(student, 1) for student in students]
    for student in students:
        check_student(course, student)
    scores = Gradebook(course, registry.unit(UNIT), "require").scores()
    for student in students:
        solved = student.split("-")[1:]
        wanted = {step: (POINTS[step] if step in solved else 0.0, POINTS[step]) for step in STEPS}
        assert {step: scores[student][step] for step in STEPS} == wanted, student


def check_student(course: Path, student: str) -> None:
    """Their notebooks are there, each with the judge's result in its test cell."""
    notebooks = sorted((course / "autograded" / student / UNIT).glob("*.ipynb"))
    handed_in = sorted((course / "submitted" / student / UNIT).glob("*.ipynb"))
    assert [path.name for path in notebooks] == [path.name for path in handed_in], student
    for path in notebooks:
        cells = [cell for cell in read(path).cells if cell.metadata.get("nbgrader", {}).get("grade_id") in STEPS]
        assert [output.output_type for cell in cells for output in cell.outputs] == ["display_data", "execute_result"]


def disturb(course: Path, round_: int) -> None:
    """Everybody hands something in again: what is judged stays, what a grade is made of does not."""
    for folder in (course / "submitted").iterdir():
        (folder / UNIT / "notes.txt").write_text(f"round {round_}")


if __name__ == "__main__":
    assert graders.course.batch and lab.cli_grade
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
