"""A course as `recovery-lab course create` makes it: nbgrader's stock commands, and students who hand in anything."""

from __future__ import annotations

import copy
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import nbgrader_run
import pytest
from click.testing import CliRunner
from nbgrader_run import UNIT, Grades, name_of, nbgrader, read, solve

from graders import registry
from graders.course import secret
from graders.engine.section_writer import place, section_text
from graders.judge import judge
from lab.cli import main

pytestmark = pytest.mark.timeout(600)
STEPS = [step.name for step in registry.unit(UNIT).steps]
POINTS = {step.name: step.max_score for step in registry.unit(UNIT).steps}
FIRST, SECOND = name_of(STEPS[0]), name_of(STEPS[1])
TREASURE = "this file is the instructor's own"
RUNS = "alert(document.domain)"
HEAVY = 60_000_000  # characters of output


@dataclass
class Course:
    folder: Path
    grades: dict[str, Grades]

    def points(self, student: str, step: str = STEPS[0]) -> float | None:
        return self.grades[student][step][0]

    def feedback(self, student: str, name: str = FIRST) -> str:
        return (self.folder / "feedback" / student / UNIT / name).with_suffix(".html").read_text()

    def autograded(self, student: str, name: str = FIRST) -> Any:
        return read(self.folder / "autograded" / student / UNIT / name)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """One course for all tests, also where they run in several processes: the first one makes it, the others wait."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if shared.name.startswith("popen-") else shared
    folder = shared / "bridge"
    with open(shared / "bridge.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = shared / "bridge.json"
        if not result.exists():
            result.write_text(json.dumps(_grade(folder)))
        return Course(folder, json.loads(result.read_text()))


def _grade(folder: Path) -> dict[str, Grades]:
    done = CliRunner().invoke(main, ["course", "create", str(folder)])
    assert done.exit_code == 0, done.output
    nbgrader(folder, "generate_assignment", UNIT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(_only_kernel(folder.parent)))
        for student, breakage in STUDENTS.items():
            breakage(_submission(folder, student))
        nbgrader(folder, "autograde", UNIT)
        nbgrader(folder, "generate_feedback", UNIT)
        nbgrader(folder, "export")
    return nbgrader_run.grades(folder, "gradebook.db")


def _only_kernel(folder: Path) -> Path:
    """A Jupyter data folder with the one kernel that anybody could start, which leaves a trace and cannot run."""
    spec = folder / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = ["touch", str(folder / "kernel-started")]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "trap", "language": "python"}))
    return folder / "jupyter"


def _submission(folder: Path, student: str) -> Path:
    submission = folder / "submitted" / student / UNIT
    submission.mkdir(parents=True)
    return submission


def _release(submission: Path, *steps: str) -> None:
    for step in steps or STEPS:
        shutil.copy(submission.parents[2] / "release" / UNIT / name_of(step), submission)


def _solved(submission: Path) -> None:
    _release(submission)
    for step in STEPS:
        solve(submission, step)


def _half(submission: Path) -> None:
    """One step in a notebook, one that was written in an editor while the notebook kept its starter."""
    _first(submission)
    _release(submission, STEPS[1])
    reference = section_text(registry.unit(UNIT).reference(), STEPS[1], STEPS)
    (submission / "client.py").write_text(place("", STEPS[1], str(reference), STEPS))


def _first(submission: Path) -> Any:
    """The first step solved and nothing else handed in."""
    _release(submission, STEPS[0])
    solve(submission, STEPS[0])
    return json.loads((submission / FIRST).read_text())


def _with(change: Callable[[list[dict[str, Any]]], None]) -> Callable[[Path], None]:
    """The first step solved, and then something done to the notebook's cells."""

    def harm(submission: Path) -> None:
        notebook = _first(submission)
        change(notebook["cells"])
        (submission / FIRST).write_text(json.dumps(notebook))

    return harm


def _at(cells: list[dict[str, Any]], part: str) -> int:
    return next(index for index, cell in enumerate(cells) if cell["id"] == f"{STEPS[0]}-{part}")


def _copied(cells: list[dict[str, Any]]) -> None:
    for part in ("solution", "test", "load"):
        index = _at(cells, part)
        cells.insert(index, copy.deepcopy(cells[index]))
    cells[_at(cells, "solution")]["source"] = f"%%step {STEPS[0]}\nraise ValueError('an earlier try')\n"


def _deleted(cells: list[dict[str, Any]]) -> None:
    del cells[_at(cells, "test")]
    del cells[_at(cells, "load")]


def _retyped(cells: list[dict[str, Any]]) -> None:
    for part, kind in (("solution", "markdown"), ("test", "raw")):
        cell = cells[_at(cells, part)]
        cell["cell_type"] = kind
        del cell["outputs"], cell["execution_count"]


def _reordered(cells: list[dict[str, Any]]) -> None:
    cells.reverse()


def _marks(cells: list[dict[str, Any]]) -> None:
    marks = {part: cells[_at(cells, part)]["metadata"]["nbgrader"] for part in ("solution", "test", "why")}
    marks["test"] |= {"points": 100, "locked": False, "solution": True, "schema_version": 1}
    marks["solution"] |= {"grade_id": "mine", "schema_version": 9}
    cells[_at(cells, "why")]["metadata"]["nbgrader"] = ["not", "a", "dict"]
    cells[_at(cells, "load")]["metadata"]["nbgrader"] = {"grade_id": f"{STEPS[0]}-solution"}


def _split(cells: list[dict[str, Any]]) -> None:
    index = _at(cells, "solution")
    lines = "".join(cells[index]["source"]).split("\n")
    second = copy.deepcopy(cells[index])
    blank = next(number for number, line in enumerate(lines) if number > 3 and not line)
    cells[index]["source"], second["source"] = "\n".join(lines[:blank]), "\n".join(lines[blank:])
    cells.insert(index + 1, second)


def _script(cells: list[dict[str, Any]]) -> None:
    answer = f"Fine.\n\n<script>{RUNS}</script><img src=x onerror='{RUNS}'>\n\n[here](javascript:{RUNS})"
    cells[_at(cells, "why")]["source"] = answer
    shown = {"output_type": "display_data", "metadata": {}, "data": {"text/html": f"<script>{RUNS}</script>"}}
    more = [
        {"cell_type": "raw", "metadata": {"raw_mimetype": "text/html"}, "source": f"<script>{RUNS}</script>"},
        {"cell_type": "markdown", "metadata": {}, "source": f"<iframe srcdoc='<script>{RUNS}</script>'></iframe>"},
        {"cell_type": "code", "metadata": {}, "source": "1", "execution_count": 1, "outputs": [shown]},
    ]
    cells[:0] = [cell | {"id": f"more-{number}"} for number, cell in enumerate(more)]


def _heavy(cells: list[dict[str, Any]]) -> None:
    text = "x" * HEAVY
    cells[_at(cells, "solution")]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]


def _missing(submission: Path) -> None:
    _release(submission, STEPS[1])


def _stray(submission: Path) -> None:
    _first(submission)
    (submission / "notes.txt").write_text("my notes")
    shutil.copy(submission / FIRST, submission / "01_framing-Copy1.ipynb")


def _foreign(submission: Path) -> None:
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(1)")]), submission / FIRST)


def _nothing(submission: Path) -> None:
    (submission / FIRST).write_text("")


def _not_json(submission: Path) -> None:
    (submission / FIRST).write_text("{" + "[" * 100_000)


def _links(submission: Path) -> None:
    """Whatever is no plain file, under every name that somebody would open."""
    treasure = submission.parents[2].parent / "treasure.txt"
    treasure.write_text(TREASURE)
    for name in (FIRST, "data.txt", ".hidden"):
        (submission / name).symlink_to(treasure)
    for name in ("timestamp.txt", "client.py", SECOND):
        os.mkfifo(submission / name)


def _linked_folder(submission: Path) -> None:
    submission.rmdir()
    elsewhere = submission.parents[2].parent / "elsewhere" / UNIT
    elsewhere.mkdir(parents=True)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(TREASURE)])
    nbformat.write(notebook, elsewhere / FIRST)
    submission.symlink_to(elsewhere)


STUDENTS: dict[str, Callable[[Path], None]] = {
    "copied": _with(_copied),
    "deleted": _with(_deleted),
    "empty": _release,
    "foreign": _foreign,
    "half": _half,
    "heavy": _with(_heavy),
    "linked_folder": _linked_folder,
    "links": _links,
    "marks": _with(_marks),
    "missing": _missing,
    "not_json": _not_json,
    "nothing": _nothing,
    "reordered": _with(_reordered),
    "retyped": _with(_retyped),
    "script": _with(_script),
    "solved": _solved,
    "split": _with(_split),
    "stray": _stray,
}
REPAIRED = ("copied", "deleted", "heavy", "marks", "reordered", "retyped", "script", "split", "stray")
UNUSABLE = ("foreign", "linked_folder", "links", "not_json", "nothing")


def test_everybody_is_graded(course: Course) -> None:
    assert sorted(course.grades) == sorted(STUDENTS)
    waiting = [(student, step) for student, found in course.grades.items() for step in STEPS if found[step][2]]
    assert waiting == []


def test_a_solved_submission_has_full_marks_and_an_empty_one_none(course: Course) -> None:
    assert {step: course.points("solved", step) for step in STEPS} == POINTS
    assert {step: course.points("empty", step) for step in STEPS} == dict.fromkeys(STEPS, 0)


def test_what_is_in_the_file_counts_where_the_cell_is_still_the_starter(course: Course) -> None:
    expected = {step: POINTS[step] if step in STEPS[:2] else 0 for step in STEPS}
    assert {step: course.points("half", step) for step in STEPS} == expected


@pytest.mark.parametrize("student", REPAIRED)
def test_a_notebook_whose_meaning_is_plain_is_repaired(course: Course, student: str) -> None:
    assert course.points(student) == POINTS[STEPS[0]]
    marks = {cell.metadata.nbgrader.grade_id for cell in course.autograded(student).cells if cell.metadata}
    assert marks == {cell.metadata.nbgrader.grade_id for cell in course.autograded("solved").cells if cell.metadata}


@pytest.mark.parametrize("student", UNUSABLE)
def test_what_cannot_be_used_gets_no_points_and_a_reason(course: Course, student: str) -> None:
    assert course.points(student) == 0
    assert "About what was handed in" in course.feedback(student)


def test_a_notebook_that_was_not_handed_in_has_no_points(course: Course) -> None:
    assert course.points("missing") == 0


def test_no_kernel_is_started(course: Course) -> None:
    assert not (course.folder.parent / "kernel-started").exists()


def test_links_lead_nowhere(course: Course) -> None:
    made = [path for top in ("autograded", "feedback") for path in (course.folder / top).rglob("*") if path.is_file()]
    assert [path for path in made if path.is_symlink() or TREASURE in path.read_text()] == []
    assert {path.name for path in made if "links" in path.parts} <= {FIRST, SECOND, "client.py"} | {
        f"{Path(name).stem}.html" for name in (FIRST, SECOND)
    }


class _Running(HTMLParser):
    """Gathers everything in a page that a browser would run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [
            f"{name}={value}" for name, value in attrs if name.startswith("on") or "script:" in (value or "")
        ]
        self.found += [str(attrs)] if tag in ("iframe", "object", "embed") else []

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.found.append(data)


def test_nothing_of_a_student_runs_in_the_feedback(course: Course) -> None:
    page = course.feedback("script")
    assert "Fine." in page and RUNS in page  # to be read, not to be run
    (running := _Running()).feed(page)
    assert running.found and not any(RUNS in found for found in running.found)


def test_an_answer_in_words_waits_for_a_person(course: Course) -> None:
    words = f"{STEPS[0]}-why"
    assert course.grades["script"][words][2] and not course.grades["deleted"][words][0]


def test_the_judge_s_report_is_in_the_feedback(course: Course) -> None:
    assert "Report on receiver" in course.feedback("empty") and "NotImplementedError" in course.feedback("empty")


def test_neither_secret_nor_seed_is_shown(course: Course) -> None:
    key = secret.read(course.folder)
    for top in ("release", "autograded", "feedback"):
        for path in (path for path in (course.folder / top).rglob("*") if path.is_file()):
            page = path.read_text()
            assert key.decode() not in page
            assert not any(str(secret.seed_of(key, UNIT, student)) in page for student in STUDENTS), path


def test_the_secret_is_its_owner_s(course: Course) -> None:
    assert stat.S_IMODE((course.folder / secret.NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE((course.folder / ".verdicts").stat().st_mode) == 0o700


def test_what_was_judged_is_kept_beside_the_notebooks(course: Course) -> None:
    text = (course.folder / "autograded" / "solved" / UNIT / "client.py").read_text()
    assert judge(text, seed=1, steps=STEPS[:1]).passed


@pytest.fixture
def small(course: Course, tmp_path: Path) -> Path:
    """A course with one submission, of the student `stray`, and without kept verdicts."""
    folder = tmp_path / "course"
    for name in ("release", "source", f"submitted/stray/{UNIT}"):
        shutil.copytree(course.folder / name, folder / name)
    for name in ("gradebook.db", secret.NAME, "nbgrader_config.py"):
        shutil.copy(course.folder / name, folder)
    return folder


def _grade_of(folder: Path) -> tuple[float | None, bool]:
    nbgrader(folder, "autograde", UNIT, "--student=stray")
    points, _, waits = nbgrader_run.grades(folder, "gradebook.db")["stray"][STEPS[0]]
    return points, waits


def test_a_newer_submission_is_graded_anew(small: Path) -> None:
    submission = small / "submitted" / "stray" / UNIT
    (submission / "timestamp.txt").write_text("2030-01-01 10:00:00 UTC")
    (submission / "submission_secret.txt").write_text("nbgrader's own")
    assert _grade_of(small) == (POINTS[STEPS[0]], False)
    _release(submission, STEPS[0])
    assert _grade_of(small) == (POINTS[STEPS[0]], False)
    (submission / "timestamp.txt").write_text("2030-01-02 10:00:00 UTC")
    assert _grade_of(small) == (0, False)
    nbgrader(small, "generate_feedback", UNIT, "--student=stray")
    made = {path.name for path in (small / "feedback" / "stray" / UNIT).iterdir()}
    assert {"timestamp.txt", "submission_secret.txt"} <= made  # without which `release_feedback` does not work


def test_a_judge_that_breaks_gives_no_points_and_calls_a_person(small: Path) -> None:
    with open(small / "nbgrader_config.py", "a") as config:
        config.write(BROKEN_JUDGE)
    assert _grade_of(small) == (0, True)
    cells = Course(small, {}).autograded("stray").cells
    (report, result) = next(cell.outputs for cell in cells if cell.get("outputs"))
    assert "A person decides about those points." in report.data["text/plain"]
    assert result.data["text/plain"] == "0.0"


def test_grading_that_breaks_gives_no_points_and_calls_a_person(small: Path) -> None:
    with open(small / "nbgrader_config.py", "a") as config:
        config.write(BROKEN_JUDGE.replace("judging.judge =", "judging.one_step ="))
    assert _grade_of(small) == (0, True)
    cells = Course(small, {}).autograded("stray").cells
    (report, _) = next(cell.outputs for cell in cells if cell.get("outputs"))
    assert "THIS STEP WAS NOT JUDGED" in report.data["text/plain"]


def test_without_the_secret_nobody_is_graded(small: Path) -> None:
    (small / secret.NAME).chmod(0o644)
    done = nbgrader(small, "autograde", UNIT, "--student=stray", expect=1)
    assert f"chmod 600 {small / secret.NAME}" in done.stderr
    assert not (small / "autograded" / "stray").exists()


def test_the_formgrader_s_way_is_the_same(small: Path) -> None:
    """It calls nbgrader from one long process, whose course directory must stay as it was."""
    done = nbgrader_run.run(small, "-c", FORMGRADER)
    assert json.loads(done.stdout.splitlines()[-1]) == [True, True]
    assert nbgrader_run.grades(small, "gradebook.db")["stray"][STEPS[0]][0] == POINTS[STEPS[0]]


FORMGRADER = """
import json
from nbgrader.apps import NbGraderAPI
from traitlets.config import PyFileConfigLoader

loader = PyFileConfigLoader("nbgrader_config.py")
api = NbGraderAPI(config=loader.load_config())
before = list(api.coursedir.ignore)
result = api.autograde("receiver", "stray")
print(json.dumps([result["success"], api.coursedir.ignore == before]))
"""
BROKEN_JUDGE = """
from graders.course import judging


def broken(*arguments, **settings):
    raise OSError("no processes left")


judging.judge = broken
"""


def test_a_course_is_made_in_an_empty_folder_only(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = CliRunner().invoke(main, ["course", "create", str(tmp_path)])
    assert (done.exit_code, done.output.count("\n")) == (2, 1) and "is not empty" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
