"""The one writer of a course's gradebook: nbgrader's own autograde, run in this process for one student at a time."""

from __future__ import annotations

import io
import logging
import os
import sysconfig
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nbgrader.api import Grade, MissingEntry, SubmittedNotebook
from nbgrader.api import Gradebook as Book
from nbgrader.apps import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from traitlets.config.loader import PyFileConfigLoader

from graders.engine.rules import Unit
from graders.engine.sandbox import Mode

CONFIG = "nbgrader_config.py"


class NoCourse(Exception):
    """The folder is no course in which this can be graded; the message says what to do."""


@dataclass(frozen=True)
class Mark:
    """What one cell has got. `waits` is whether a person still has to look at it, `by_hand` whether one has."""

    cell: str
    notebook: str
    points: float
    most: float
    waits: bool
    by_hand: bool

    @property
    def step(self) -> str:
        """The step that the notebook is about."""
        return self.notebook.partition("_")[2]

    @property
    def is_judged(self) -> bool:
        """Whether it is a step's test cell, and not one in words."""
        return self.cell == self.step

    @property
    def is_undecided(self) -> bool:
        """A test cell that the judge has left to a person."""
        return self.is_judged and self.waits and not self.by_hand


@dataclass(frozen=True)
class Record:
    """What the gradebook says of one student's submission."""

    marks: tuple[Mark, ...]
    penalty: float  # for being late
    handed_in: datetime | None  # where the submission says when


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
        # nbgrader runs alembic for a new gradebook, by name; it is beside this Python, which need not be on PATH.
        os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])

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

    def judged(self, student: str) -> dict[str, float]:
        """The points that the judge has given for each step."""
        steps = {step.name for step in self.unit.steps}
        with Book(self.url) as book:
            submission = book.find_submission(self.unit.name, student)
            return {
                grade.name: float(grade.auto_score or 0)
                for notebook in submission.notebooks
                for grade in notebook.grades
                if grade.name in steps
            }

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

    @property
    def is_there(self) -> bool:
        """Whether there is a gradebook at all: looking into one that is not there would make it."""
        kind, _, path = self.url.partition(":///")
        return kind != "sqlite" or Path(path.partition("?")[0]).is_file()

    def known(self) -> dict[str, str]:
        """Everybody in the course, and the name that the gradebook has of them, or ""."""
        with Book(self.url) as book:
            return {each.id: " ".join(filter(None, (each.first_name, each.last_name))) for each in book.students}

    def records(self) -> dict[str, Record]:
        """Student to what the gradebook says of their submission."""
        with Book(self.url) as book:
            try:
                submissions = book.assignment_submissions(self.unit.name)
            except MissingEntry:
                return {}
            # All at once: what is loaded is not asked for again, so that the queries do not grow with the class.
            notebooks = {each.id: each for each in book.db.query(SubmittedNotebook).all()}
            penalties: dict[str, float] = {}
            for notebook in notebooks.values():
                late = float(notebook.late_submission_penalty or 0)
                penalties[notebook.assignment_id] = penalties.get(notebook.assignment_id, 0.0) + late
            marks: dict[str, list[Mark]] = {}
            for grade in book.db.query(Grade).all():
                notebook = notebooks[grade.notebook_id]
                marks.setdefault(notebook.assignment_id, []).append(_mark(grade, notebook.name))
            return {
                each.student_id: Record(
                    tuple(marks.get(each.id, ())),
                    penalties.get(each.id, 0.0),
                    each.timestamp.replace(tzinfo=UTC) if each.timestamp else None,
                )
                for each in submissions
            }


def _mark(grade: Any, notebook: str) -> Mark:
    by_hand = grade.manual_score is not None
    waits = bool(grade.needs_manual_grade)
    # The cell's own maximum: to ask each grade for its maximum would be a query for each.
    return Mark(grade.name, notebook, float(grade.score), float(grade.cell.max_score), waits, by_hand)
