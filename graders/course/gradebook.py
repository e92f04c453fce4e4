"""The one writer of a course's gradebook: nbgrader's own autograde, run in this process for one student at a time."""

from __future__ import annotations

import io
import logging
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook as Book
from nbgrader.api import MissingEntry
from nbgrader.apps import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from traitlets.config.loader import PyFileConfigLoader

from graders.engine.rules import Unit
from graders.engine.sandbox import Mode

CONFIG = "nbgrader_config.py"


class NoCourse(Exception):
    """The folder is no course in which this can be graded; the message says what to do."""


class Gradebook:
    """A course's gradebook, for one assignment."""

    def __init__(self, course: Path, unit: Unit, sandbox: Mode) -> None:
        if not (course / CONFIG).is_file():
            raise NoCourse(f"{course} is no course: make one with `recovery-lab course create {course}`")
        if not (course / "release" / unit.name).is_dir():
            raise NoCourse(f"nothing is released yet: run `nbgrader generate_assignment {unit.name}` in {course}")
        config = PyFileConfigLoader(CONFIG, path=str(course)).load_config()
        config.Judge.sandbox = sandbox
        self.unit = unit
        self.api = NbGraderAPI(CourseDirectory(config=config), config=config)
        self.api.log.setLevel(logging.WARNING)
        self.url = self.api.coursedir.db_url

    def students(self) -> frozenset[str]:
        """Those of whom the gradebook has a submission."""
        with Book(self.url) as book:
            try:
                return frozenset(each.student.id for each in book.assignment_submissions(self.unit.name))
            except MissingEntry:
                return frozenset()

    def write(self, student: str) -> tuple[str, tuple[str, ...]]:
        """Autograde one student anew; what went wrong, or "", and the steps that wait for a person."""
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            result: dict[str, Any] = self.api.autograde(self.unit.name, student, force=True)
        if not result["success"]:
            log = str(result.get("error") or result.get("log") or said.getvalue()).strip().splitlines()
            return f"nbgrader says: {log[-1] if log else 'nothing'}", ()
        return "", tuple(sorted(self.undecided(student)))

    def undecided(self, student: str) -> set[str]:
        """The test cells that wait for a person."""
        steps = {step.name for step in self.unit.steps}
        with Book(self.url) as book:
            submission = book.find_submission(self.unit.name, student)
            return {
                grade.name
                for notebook in submission.notebooks
                for grade in notebook.grades
                if grade.name in steps and grade.needs_manual_grade and grade.manual_score is None
            }

    def scores(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Student to cell to points given (automatic or by hand) and possible."""
        with Book(self.url) as book:
            return {
                submission.student.id: {
                    grade.name: (float(grade.score), float(grade.max_score))
                    for notebook in submission.notebooks
                    for grade in notebook.grades
                }
                for submission in book.assignment_submissions(self.unit.name)
            }
