"""What nbgrader loads by name: `nbgrader_config.py` of a course names these classes, and the stock commands use them.

No kernel is started, and nothing of a submission is copied, followed or waited for: see `Repairing`.
"""

from __future__ import annotations

import html as html_library
import logging
import os
import traceback
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution, parse_utc
from traitlets import Enum

from graders import registry
from graders.course import judging, secret
from graders.course.cells import LARGEST, parse
from graders.course.files import Refused, read_in_folder, write
from graders.course.judging import Paper
from graders.course.repair import repair
from graders.course.submission import notebooks_of, read
from graders.course.verdicts import NAME as VERDICTS
from graders.course.verdicts import VerdictStore
from graders.engine import sandbox as sandboxes
from graders.engine.sandbox import Mode
from graders.report import html, text
from graders.verdict import Outcome, Verdict

KEY = "recovery_lab"  # under which preprocessors find what the exporter left for them
MOST_SHOWN = 20  # lines about what could not be used of a submission
TIMESTAMP = "timestamp.txt"
OF_THE_EXCHANGE = (TIMESTAMP, "submission_secret.txt")
LONGEST_LINE = 1000  # bytes of either
UNDECIDED = (
    "The judge could not tell about every rule, through a fault of its own. A person decides about those points."
)
LOUD = "border: 2px solid #b3261e; padding: 4px 12px; margin: 8px 0;"


@dataclass
class Handout:
    """What the exporter knows about the notebook that is being graded, and what the judge leaves for later."""

    course: Path
    submitted: Path
    autograded: Path
    notes: tuple[str, ...]
    on_desk: dict[tuple[str, str], Paper]  # the one submission at work, by student and assignment
    undecided: list[str] = field(default_factory=list)


class Careful(CourseDirectory):  # type: ignore[misc]
    """A course directory for autograding: nothing in a submission but its notebooks is looked at by nbgrader itself."""

    def get_existing_timestamp(self, dest_path: str) -> datetime | None:
        """nbgrader's own opens whatever has the name, and waits for ever where that is a pipe."""
        try:
            words = read_in_folder(Path(dest_path, TIMESTAMP), LONGEST_LINE).decode().strip()
            return parse_utc(words) if words else None
        except FileNotFoundError:
            return None
        except (Refused, ValueError, OverflowError) as error:
            self.log.warning("%s: %s %s; the submission counts as without one", dest_path, TIMESTAMP, error)
            return None

    @classmethod
    def in_place_of(cls, course: CourseDirectory) -> Careful:
        """The same course, with all that was set on it. `ignore` is what nbgrader does not copy from a submission."""
        careful = cls(parent=course.parent, config=course.config)
        for name in course.trait_names(config=True):
            setattr(careful, name, getattr(course, name))
        careful.ignore = ["*"]
        return careful


class Repairing(NotebookExporter):
    """Reads a student's notebook as hostile input and repairs it, before any part of nbgrader sees it.

    nbgrader makes its exporter before it touches the first submission, and after it has read its settings. That is the
    place to put a careful course directory into the converter: hooks are run too late for a timestamp, and what they
    raise is swallowed.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)  # type: ignore[no-untyped-call]
        self.notes: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.on_desk: dict[tuple[str, str], Paper] = {}
        converter: Any = self.parent
        self.course = converter.coursedir = Careful.in_place_of(converter.coursedir)

    def from_filename(self, filename: str, resources: Any = None, **settings: Any) -> Any:
        """Both passes come here: with the file that was handed in, and with what the first pass made of it."""
        names, course = resources["nbgrader"], self.course
        # Without these nothing can be graded at all, so that this ends in an error and not in a grade.
        secret.read(Path(course.root))
        released = parse(self.release(names["assignment"], names["notebook"]).read_bytes())
        try:
            student = parse(read_in_folder(Path(filename), LARGEST))
        except (Refused, FileNotFoundError) as error:
            self.log.warning("%s %s", filename, error)
            student = None
        repaired = repair(student, released)  # type: ignore[arg-type]
        # The second pass finds hardly anything left to repair: what the first one noted is what counts.
        key = (names["student"], names["assignment"], names["notebook"])
        for note in repaired.notes if key not in self.notes else ():
            self.log.warning("%s: %s", filename, note)
        notes = self.notes.setdefault(key, repaired.notes)
        resources["metadata"] = {"name": names["notebook"], "path": os.path.dirname(filename)}
        resources[KEY] = Handout(
            Path(course.root),
            self.folder(course.submitted_directory, names),
            self.folder(course.autograded_directory, names),
            notes,
            self.on_desk,
        )
        notebook = nbformat.from_dict(repaired.notebook)  # type: ignore[no-untyped-call]
        nbformat.validate(notebook)
        return self.from_notebook_node(notebook, resources=resources, **settings)  # type: ignore[no-untyped-call]

    def folder(self, directory: str, names: dict[str, str]) -> Path:
        return Path(self.course.format_path(directory, names["student"], names["assignment"]))

    def release(self, assignment: str, notebook: str) -> Path:
        folder = self.course.format_path(self.course.release_directory, ".", assignment)
        path = Path(folder, f"{notebook}.ipynb")
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: run `nbgrader generate_assignment {assignment}`")
        return path


class Judge(NbGraderPreprocessor):  # type: ignore[misc]
    """Takes the place of Execute: writes the judge's report and points into the test cells. Nothing is run here."""

    sandbox: Mode = Enum(  # type: ignore[assignment]
        ["require", "auto", "off"], "require", help="Whether to shut students' programs in: always, if possible, never."
    ).tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """nbgrader gives full marks to a test cell without a result: each one gets a zero before anything can fail.

        Raises NoSandbox where programs have to be shut in and cannot: then nobody gets any grade.
        """
        sandboxes.wanted(self.sandbox)
        cells = [cell for cell in nb.cells if is_grade(cell) and cell.cell_type == "code" and not is_solution(cell)]
        for cell in cells:
            cell.outputs = _outputs("Not judged.", "<p>Not judged.</p>", 0.0)
        for cell in cells:
            self.mark(cell, resources)
        _keep_for_exchange(resources[KEY])
        return nb, resources

    def mark(self, cell: Any, resources: Any) -> None:
        handout, step = resources[KEY], cell.metadata.nbgrader["grade_id"]
        try:
            report = judge(handout, resources["nbgrader"], step, self.sandbox)
            points = min(report.points, float(cell.metadata.nbgrader["points"]))
            cell.outputs = _outputs(report.text, report.html, points)
            undecided = report.undecided
        except Exception as error:
            self.log.error("%s of %s was not judged:\n%s", step, handout.submitted, traceback.format_exc())
            words = f"THIS STEP WAS NOT JUDGED, because the grading itself failed ({type(error).__name__}). "
            words += "Until a person has decided about it, it has 0 points."
            cell.outputs = _outputs(words, f'<div role="alert" style="{LOUD}">{words}</div>', 0.0)
            undecided = True
        if undecided:
            self.log.error("%s of %s waits for a person", step, handout.submitted)
            handout.undecided.append(step)


class LeaveToPerson(NbGraderPreprocessor):  # type: ignore[misc]
    """Behind SaveAutoGrades: marks what the judge could not decide as waiting for a person."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        names, undecided = resources["nbgrader"], resources[KEY].undecided
        if undecided:
            with Gradebook(names["db_url"]) as book:
                for step in undecided:
                    grade = book.find_grade(step, names["notebook"], names["assignment"], names["student"])
                    grade.needs_manual_grade = True
                book.db.commit()
        return nb, resources


@dataclass(frozen=True)
class Report:
    """What goes into one test cell."""

    text: str
    html: str
    points: float
    undecided: bool


def judge(handout: Handout, names: dict[str, str], step: str, sandbox: Mode) -> Report:
    """The report on one step. The submission is judged as a whole, the first time that any step of it is asked for."""
    paper = _on_desk(handout, names, sandbox)
    # What was judged stands beside the notebooks, for whoever wants to look into it.
    _keep(handout.autograded / paper.unit.file_name, paper.submission.source.encode())
    found = judging.one_step(paper.verdict, step)
    for finding in found.rules:
        if finding.outcome is Outcome.ERROR:
            logging.getLogger("traitlets").error("%s: %s", finding.rule, finding.message)
    page = Verdict(paper.unit.name, judging.PUBLIC_SEED, (judging.one_step(paper.shown, step),))
    undecided = any(rule.outcome is Outcome.ERROR for rule in found.rules)
    lines = _lines(paper, f"{names['notebook']}.ipynb", handout.notes) + [UNDECIDED] * undecided
    return Report(
        "\n".join([*lines, text.render(page)]),
        _list(lines) + html.render(page),
        judging.sure_points(found),
        undecided,
    )


def _on_desk(handout: Handout, names: dict[str, str], sandbox: Mode) -> Paper:
    """The student's submission, which lies there since their first notebook."""
    key = names["student"], names["assignment"]
    if key not in handout.on_desk:
        unit = registry.unit(names["assignment"])
        seed = secret.seed_of(secret.read(handout.course), unit.name, names["student"])
        verdicts = VerdictStore(handout.course / VERDICTS)
        handout.on_desk.clear()
        handout.on_desk[key] = Paper(read(handout.submitted, unit), unit, seed, verdicts, sandbox)
    return handout.on_desk[key]


def _keep_for_exchange(handout: Handout) -> None:
    """What nbgrader's exchange put into the submission: to see whether a newer one has come, and to give feedback."""
    for name in OF_THE_EXCHANGE:
        try:
            _keep(handout.autograded / name, read_in_folder(handout.submitted / name, LONGEST_LINE))
        except (FileNotFoundError, Refused):
            (handout.autograded / name).unlink(missing_ok=True)


def _keep(path: Path, data: bytes) -> None:
    if not path.is_file() or path.read_bytes() != data:
        write(path, data)


def _lines(paper: Paper, notebook: str, notes: tuple[str, ...]) -> list[str]:
    """What could not be used, and what was repaired."""
    problems = [str(problem) for problem in paper.submission.about(notebook, list(notebooks_of(paper.unit)))]
    lines = [*problems, *(f"{notebook}: {note}" for note in notes)]
    left = len(lines) - MOST_SHOWN
    return lines[:MOST_SHOWN] + ([f"… and {left} more"] if left > 0 else [])


def _list(lines: list[str]) -> str:
    items = "".join(f"<li>{html_library.escape(line)}</li>" for line in lines)
    return f'<div style="margin: 8px 0;">About what was handed in:<ul>{items}</ul></div>' if items else ""


def _outputs(words: str, page: str, points: float) -> list[Any]:
    """A report to look at, and the points as nbgrader reads them."""
    output = nbformat.v4.new_output
    report = output("display_data", data={"text/plain": words, "text/html": page})  # type: ignore[no-untyped-call]
    result = output("execute_result", data={"text/plain": repr(max(points, 0.0))})  # type: ignore[no-untyped-call]
    return [report, result]
