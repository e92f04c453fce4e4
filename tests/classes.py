"""Making a course with a class in it, for the tests of grading it."""

from __future__ import annotations

import shutil
from pathlib import Path

from click.testing import CliRunner
from nbgrader_run import UNIT, name_of, nbformat, nbgrader, read, solve

from graders import registry
from lab.cli import main

STEPS = [step.name for step in registry.unit(UNIT).steps]


def new_class(course: Path, students: dict[str, tuple[str, ...]], *, whole: bool = True) -> Path:
    """A course in which each student has solved some steps, each in words of their own.

    Not `whole`: only the notebooks of those steps are handed in, and the first one; what is not there costs no time.
    """
    done = CliRunner().invoke(main, ["course", "create", str(course)])
    assert done.exit_code == 0, done.output
    nbgrader(course, "generate_assignment", UNIT)
    for student, solved in students.items():
        hand_in(course, student, solved, whole=whole)
    return course


def hand_in(course: Path, student: str, solved: tuple[str, ...], *, whole: bool = True) -> Path:
    folder = course / "submitted" / student / UNIT
    folder.mkdir(parents=True)
    for step in STEPS if whole else dict.fromkeys((STEPS[0], *solved)):
        shutil.copy(course / "release" / UNIT / name_of(step), folder)
    for step in solved:
        solve(folder, step)
    sign(folder, student)
    return folder


def sign(folder: Path, words: str) -> None:
    """A comment in the first step's cell: no two students hand in the same program."""
    path = folder / name_of(STEPS[0])
    notebook = read(path)
    for cell in notebook.cells:
        if cell.source.startswith("%%step"):
            cell.source += f"\n# {words}\n"
    nbformat.write(notebook, path)
