"""nbgrader with its stock pipeline: release, validation and autograde by its own commands, a kernel per notebook."""

from __future__ import annotations

import fcntl
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import nbgrader_run as course_tools
import pytest
from nbgrader_run import UNIT, Grades, nbgrader

from graders import registry
from graders.engine.section_writer import section_text

pytestmark = pytest.mark.timeout(900)  # seconds; the course takes one or two minutes, also for who waits for it
STEPS = [step.name for step in registry.unit(UNIT).steps]
POINTS = {step.name: step.max_score for step in registry.unit(UNIT).steps}
WITHOUT_WORDS = ("isolation_level=None", "isolation_level=''")  # part of the step `store` goes wrong with it
NOT_HANDED_IN = STEPS[-2:]


@dataclass
class Graded:
    """A course after one autograde of four students."""

    folder: Path
    grades: dict[str, Grades]

    def file(self, kind: str, student: str) -> Path:
        return self.folder / ".course" / kind / student / UNIT / "client.py"

    def steps(self, student: str) -> dict[str, float | None]:
        """The automatic points of each step's test cell."""
        return {step: self.grades[student][step][0] for step in STEPS if step in self.grades[student]}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    """One course for all tests, also where they run in several processes: the first one makes it, the others wait."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if shared.name.startswith("popen-") else shared
    with open(shared / "course.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = shared / "grades.json"
        if not result.exists():
            result.write_text(json.dumps(_grade(course_tools.new_course(shared / "course"))))
        return Graded(shared / "course", json.loads(result.read_text()))


def _grade(course: Path) -> dict[str, Grades]:
    nbgrader(course, "generate_assignment", UNIT)
    _solved(course_tools.submission(course, "solved"))
    course_tools.submission(course, "empty")
    _half(course_tools.submission(course, "half"))
    _editor(course_tools.submission(course, "editor"))
    with ThreadPoolExecutor() as at_once:
        list(
            at_once.map(lambda students: nbgrader(course, "autograde", UNIT, f"--student={students}"), ["s*", "[!s]*"])
        )
    return course_tools.grades(course)


def _solved(folder: Path) -> None:
    for step in STEPS:
        course_tools.solve(folder, step)


def _half(folder: Path) -> None:
    """Part of `store`, nothing of `atomic_apply`, three whole steps, the last two not handed in; a file with notes."""
    for step in NOT_HANDED_IN:
        (folder / course_tools.name_of(step)).unlink()
    for step in STEPS:
        if step not in ("atomic_apply", *NOT_HANDED_IN):
            course_tools.solve(folder, step, WITHOUT_WORDS if step == "store" else ("", ""))
    (folder / "client.py").write_text('"""Half way."""\n\n# %% [markdown]\n# My notes.\n')


def _editor(folder: Path) -> None:
    """Somebody who works in an editor: two starters as they were handed out, and a file of their own."""
    for step in STEPS[2:]:
        (folder / course_tools.name_of(step)).unlink()
    reference = registry.unit(UNIT).reference()
    (folder / "client.py").write_text(reference.replace("# %% store", "# Mine.\n\n# %% store") + "\n# Mine too.\n")


def test_the_release_is_the_one_in_this_repository(graded: Graded) -> None:
    released = {path.name: course_tools.read(path).cells for path in (graded.folder / "notebooks" / UNIT).iterdir()}
    kept = course_tools.ROOT / "notebooks" / UNIT
    assert released == {path.name: course_tools.read(path).cells for path in kept.glob("*.ipynb")}


def test_a_solved_submission_gets_every_automatic_point(graded: Graded) -> None:
    assert graded.steps("solved") == POINTS


def test_an_empty_submission_gets_none(graded: Graded) -> None:
    assert graded.steps("empty") == dict.fromkeys(STEPS, 0)


def test_words_wait_for_a_person_and_cost_nothing_until_then(graded: Graded) -> None:
    words = {name for name in graded.grades["solved"] if name not in STEPS}
    assert words
    assert all(graded.grades["solved"][name][2] for name in words)
    assert all(graded.grades["empty"][name][0] == 0 for name in words)


def test_part_of_a_step_gets_part_of_its_points(graded: Graded) -> None:
    points = graded.steps("half")["store"]
    assert points is not None and 0 < points < POINTS["store"]


def test_a_step_that_fails_takes_no_points_of_another(graded: Graded) -> None:
    expected = {"framing": POINTS["framing"], "atomic_apply": 0} | {step: POINTS[step] for step in STEPS[3:-2]}
    assert {step: graded.steps("half")[step] for step in expected} == expected
    assert len(expected) == 4


def test_a_file_written_in_an_editor_is_judged_and_stays_as_it_is(graded: Graded) -> None:
    assert graded.grades["editor"]["framing"][0] == POINTS["framing"]
    mine = [
        section_text(graded.file(kind, "editor").read_text(), "framing", STEPS) for kind in ("submitted", "autograded")
    ]
    assert mine[0] == mine[1] and "# Mine." in str(mine[0])


def test_submissions_are_not_written_to(graded: Graded) -> None:
    assert graded.file("submitted", "half").read_text() == '"""Half way."""\n\n# %% [markdown]\n# My notes.\n'
    assert not graded.file("submitted", "empty").exists()
    assert not graded.file("submitted", "solved").exists()


def test_what_a_learner_had_in_the_file_is_there_after_autograde(graded: Graded) -> None:
    text = graded.file("autograded", "half").read_text()
    assert text.startswith('"""Half way."""\n') and text.count("# My notes.") == 1


def test_no_section_is_the_reference_s_unless_the_learner_wrote_it(graded: Graded) -> None:
    text = graded.file("autograded", "empty").read_text()
    assert all("raise NotImplementedError()" in str(section_text(text, step, STEPS)) for step in STEPS)


@pytest.fixture
def workspace(graded: Graded, tmp_path: Path) -> Path:
    """A learner's folder with the release in it."""
    return Path(shutil.copytree(graded.folder / "notebooks" / UNIT, tmp_path / "work"))


def test_validate_likes_a_solution_and_says_what_a_starter_lacks(workspace: Path) -> None:
    step = STEPS[0]
    name = course_tools.name_of(step)
    starter = nbgrader(workspace, "validate", name, expect=None)
    assert "VALIDATION FAILED" in starter.stdout and f'check("{step}")' in starter.stdout
    course_tools.solve(workspace, step)
    solved = nbgrader(workspace, "validate", name)
    assert "Success! Your notebook passes all the tests." in solved.stdout
