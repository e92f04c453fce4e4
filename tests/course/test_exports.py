"""Results for other programs: nothing hidden in them, no formula, no file anywhere else, and nothing judged."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
import stored
from classes import STEPS, hand_in, new_class, sign
from click.testing import CliRunner
from click.testing import Result as Done
from nbgrader.api import Gradebook
from nbgrader_run import UNIT

from graders.course import exports, judging, secret
from graders.course.gradebook import Mark, Record
from graders.course.results import Result, of_class
from graders.course.submission import read
from graders.course.verdicts import NAME
from lab.cli import main

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own, about its own
RULE = "atomic_apply/killed_anywhere"
EVIL = "=cmd|' calc'!A0"
POINTS = {step.name: step.max_score for step in stored.RECEIVER.steps}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    course = new_class(tmp_path_factory.mktemp("class") / "course", {"ada": (), EVIL: (STEPS[0],)})
    stored.grade(course, "ada", {RULE: "con.commit()"})
    stored.grade(course, EVIL, {})
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        book.find_submission(UNIT, "ada").timestamp = datetime(2026, 11, 30, 12, 0)
        book.find_submission_notebook("02_store", UNIT, "ada").late_submission_penalty = 1.5
        book.find_grade("store", "02_store", UNIT, "ada").needs_manual_grade = True
        book.db.commit()
    return course


@pytest.fixture
def course(graded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(graded, tmp_path / "course"))


def export(course: Path, form: str, output: Path) -> Done:
    arguments = ["export", UNIT, "--course", str(course), "--format", form, "--output", str(output)]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_a_table_has_a_row_for_each_student(course: Path, tmp_path: Path) -> None:
    hand_in(course, "bob", ())
    done = export(course, "csv", tmp_path / "class.csv")
    assert (done.exit_code, done.stderr) == (1, "bob: not graded yet\n")
    text = (tmp_path / "class.csv").read_text(encoding="utf-8")
    evil, ada, bob = csv.DictReader(io.StringIO(text))
    assert [row["student"] for row in (evil, ada, bob)] == [f"'{EVIL}", "ada", "bob"]
    assert {step: float(evil[step]) for step in STEPS} == POINTS
    assert float(ada["atomic_apply"]) == POINTS["atomic_apply"] - 0.5
    assert (float(ada["total"]), float(ada["max"]), float(ada["late_penalty"]), float(ada["score"])) == (
        19.5,
        36,
        1.5,
        18,
    )
    assert ada["waits_for_person"] == "store" and "framing-why" in evil["waits_for_person"]
    assert (ada["timestamp"], evil["timestamp"]) == ("2026-11-30T12:00:00+00:00", "")
    assert not any(bob[column] for column in bob if column != "student")


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_cell_is_a_formula(first: str) -> None:
    mark = Mark(f"{first}cell", "01_framing", 1, 2, True, False)
    result = Result(f"{first}1+1,\ud800", "", True, Record((mark,), 0, None))
    head, row = csv.reader(io.StringIO(exports.table([result], stored.RECEIVER)))
    for cell in (*head, *row):
        assert not cell.startswith(exports.FORMULA)
    assert row[0] == f"'{first}1+1,\\ud800" and row[-2] == f"'{first}cell"


def test_gradescope_gets_what_a_student_may_see(course: Path, tmp_path: Path) -> None:
    done = export(course, "gradescope", tmp_path / "out")
    assert (done.exit_code, done.stderr) == (0, "")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(["ada", exports.file_name(EVIL)])
    ada = json.loads((tmp_path / "out" / "ada" / "results.json").read_text())
    tests = {test["name"]: test for test in ada["tests"]}
    assert (tests[RULE]["status"], tests[RULE]["score"]) == ("failed", 0)
    assert "public is lost" in tests[RULE]["output"]
    waiting = [test for name, test in tests.items() if name.startswith("store/")]
    assert {test["score"] for test in waiting} == {0} and all(exports.A_PERSON in test["output"] for test in waiting)
    assert ada["score"] == sum(POINTS.values()) - 0.5 - POINTS["store"]
    evil = json.loads((tmp_path / "out" / exports.file_name(EVIL) / "results.json").read_text())
    assert evil["score"] == sum(POINTS.values())


@pytest.mark.parametrize("form", ["csv", "gradescope", "junit"])
def test_nothing_hidden_goes_out(course: Path, tmp_path: Path, form: str) -> None:
    export(course, form, tmp_path / "out")
    key = secret.read(course)
    hidden = [stored.HIDDEN, key.decode(), *(str(secret.seed_of(key, UNIT, student)) for student in ("ada", EVIL))]
    files = [path for path in [tmp_path / "out", *(tmp_path / "out").rglob("*")] if path.is_file()]
    assert files and all(word not in path.read_text() for path in files for word in hidden)


def test_junit_is_xml(course: Path, tmp_path: Path) -> None:
    assert export(course, "junit", tmp_path / "out").exit_code == 0
    root = ElementTree.parse(tmp_path / "out" / "ada.xml").getroot()
    assert (root.get("failures"), root.get("errors")) == ("1", "0")
    assert (tmp_path / "out" / f"{exports.file_name(EVIL)}.xml").is_file()


def test_what_is_not_in_the_store_is_not_judged(course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a verdict with public inputs a student reads less; without any, there is nothing to hand on."""
    monkeypatch.setattr(judging, "judge", lambda *_, **__: pytest.fail("a program is judged"))
    digest = read(course / "submitted" / "ada" / UNIT, stored.RECEIVER).digest
    stored.VerdictStore(course / NAME)._path(stored.RECEIVER, judging.PUBLIC_SEED, digest).unlink()
    assert export(course, "gradescope", tmp_path / "bare").exit_code == 0
    assert (
        judging.HIDDEN
        in json.loads((tmp_path / "bare" / "ada" / "results.json").read_text().replace("\\n", " "))["tests"][
            _place(RULE)
        ]["output"]
    )
    sign(course / "submitted" / EVIL / UNIT, "second thoughts")
    done = export(course, "gradescope", tmp_path / "out")
    assert (done.exit_code, done.stderr) == (1, f"{EVIL}: handed in anew since it was graded\n")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["ada"]


def _place(rule: str) -> int:
    return [each.rule for step in stored.verdict(1, {}, "").steps for each in step.rules].index(rule)


def test_a_folder_that_is_there_is_left_alone(course: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("out", "link", "out/mine", "none/out"):
        done = export(course, "junit", tmp_path / name)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["course", "link", "out"]
    (tmp_path / "out" / "mine").unlink()
    assert export(course, "junit", tmp_path / "out").exit_code == 0


HOSTILE = ("../x", "/etc/passwd", "..", ".", "", ".hidden", "-rf", "a/b", "a\\b", "a\0b", "a\nb", "%2E", "é" * 200)
HOSTILE += ("x" * 300, "x" * 301, "~", "\udc80", " a", f"{'x' * 109}~{'0' * 40}")


def test_hostile_ids_stay_in_the_folder(course: Path, tmp_path: Path) -> None:
    names = [exports.file_name(student) for student in HOSTILE]
    assert len({*names}) == len(HOSTILE)
    (ada,) = (result for result in of_class(course, stored.RECEIVER) if result.student == "ada")
    assert exports.write_folder(
        [replace(ada, student=each) for each in HOSTILE], "gradescope", tmp_path / "out"
    ) == len(HOSTILE)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["course", "out"]
    assert all(name[:1] not in (".", "-", "") and name.isascii() and name.isprintable() for name in names)
