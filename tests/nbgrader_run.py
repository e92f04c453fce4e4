"""Running nbgrader for real, in a copy of the course: its own commands, its stock pipeline, kernels and all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import nbformat

from graders import registry
from graders.engine.section_writer import SOLUTION_MARK

ROOT = Path(__file__).resolve().parents[1]
UNIT = "receiver"
DEADLINE = 800.0  # seconds for one command; the longest takes a minute or two
# Jupyter chooses a kernel's ports, frees them, and lets the kernel take them a second later. The judges of the other
# tests open hundreds of connections meanwhile, and one may have got such a port.
PORT_RACES = ("Address already in use", "Kernel didn't respond in", "Kernel died")
TRIES = 3
Grades = dict[str, tuple[float | None, float, bool]]
MARKDOWN_MARK = ("<!-- BEGIN SOLUTION -->", "<!-- END SOLUTION -->")

READ_GRADES = """
import json, sys
from nbgrader.api import Gradebook
with Gradebook(sys.argv[1]) as book:
    print(json.dumps({
        submission.student.id: {
            grade.name: [grade.auto_score, grade.max_score, bool(grade.needs_manual_grade)]
            for notebook in submission.notebooks for grade in notebook.grades
        }
        for submission in book.assignment_submissions(sys.argv[2])
    }))
"""


def run(
    folder: Path, *arguments: str, expect: int | None = 0, deadline: float = DEADLINE
) -> subprocess.CompletedProcess[str]:
    """Run `python <arguments>` in `folder` as a user with an activated environment would."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "JUPYTER_NO_CONFIG": "1",
        "JUPYTER_CONFIG_DIR": str(folder / "no-config"),
    }
    for _ in range(TRIES):
        done = subprocess.run(
            [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=deadline
        )
        if not any(sign in done.stderr for sign in PORT_RACES):
            break
    assert expect is None or done.returncode == expect, done.stdout + done.stderr
    return done


def nbgrader(folder: Path, *arguments: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
    return run(folder, "-m", "nbgrader", *arguments, expect=expect)


def new_course(folder: Path) -> Path:
    """A course with the sources and the settings of this repository, nothing released yet."""
    folder.mkdir()
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    shutil.copytree(ROOT / "solutions" / UNIT, folder / "solutions" / UNIT)
    return folder


def submission(course: Path, student: str) -> Path:
    """A student's submission as it is handed out: the release, unchanged."""
    folder = course / ".course" / "submitted" / student / UNIT
    shutil.copytree(course / "notebooks" / UNIT, folder)
    return folder


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def name_of(step: str) -> str:
    """The notebook's file name."""
    number = [each.name for each in registry.unit(UNIT).steps].index(step) + 1
    return f"{number:02}_{step}.ipynb"


def solve(folder: Path, step: str, replacement: tuple[str, str] = ("", "")) -> None:
    """Put the solution's words and code into a submission's notebook, with `replacement` made in the code."""
    notebook = read(folder / name_of(step))
    solutions = {cell.id: cell.source for cell in read(ROOT / "solutions" / UNIT / name_of(step)).cells}
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = _without_marks(solutions[cell.id]).replace(*replacement)
    nbformat.write(notebook, folder / name_of(step))


def _without_marks(source: str) -> str:
    lines = source.split("\n")
    return "\n".join(line for line in lines if not SOLUTION_MARK.match(line) and line.strip() not in MARKDOWN_MARK)


def grades(course: Path, book: str = ".course/gradebook.db") -> dict[str, Grades]:
    """Student to grade cell to (automatic score, maximum, waits for a person)."""
    done = run(course, "-c", READ_GRADES, f"sqlite:///{course / book}", UNIT)
    found = json.loads(done.stdout.splitlines()[-1])
    return {student: {name: tuple(grade) for name, grade in cells.items()} for student, cells in found.items()}
