"""Grading a class: in parallel, on a cluster, again, and after whatever ended it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

import nbgrader_run
import pytest
from classes import STEPS, hand_in, new_class, sign
from click.testing import CliRunner, Result
from nbgrader_run import UNIT, Grades, name_of
from sandboxed import needs_sandbox

from graders import registry
from graders.course import batch as batches
from graders.course.batch import Batch
from lab.cli import main

pytestmark = [
    needs_sandbox,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),  # nbgrader's own, about its own
]
POINTS = {step.name: step.max_score for step in registry.unit(UNIT).steps}
CLASS = {"ada": (STEPS[0], STEPS[3]), "bob": (STEPS[0],), "cem": (), "dot": (STEPS[0], STEPS[3])}
NOTEBOOKS = 2 + 1 + 1 + 2  # that they hand in
KILLS = 50
LONGEST_LIFE = 1.6  # seconds until a kill; a whole run takes about as long
DEADLINE = 60.0  # seconds


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_class(tmp_path_factory.mktemp("class") / "course", CLASS, whole=False)


@pytest.fixture
def course(handed_in: Path, tmp_path: Path) -> Path:
    """A course with a class that nobody has graded yet."""
    folder = Path(shutil.copytree(handed_in, tmp_path / "course"))
    config = folder / "nbgrader_config.py"
    assert str(handed_in) not in config.read_text(), "a course can be moved"
    return folder


def grade(course: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["grade", UNIT, "--course", str(course), *arguments], catch_exceptions=False)


def grades(course: Path) -> dict[str, Grades]:
    return nbgrader_run.grades(course, "gradebook.db")


def points(course: Path, student: str) -> dict[str, float | None]:
    found = grades(course)[student]
    return {step: found[step][0] for step in STEPS}


def expected(solved: tuple[str, ...]) -> dict[str, float]:
    return {step: POINTS[step] if step in solved else 0 for step in STEPS}


def test_a_class_is_graded_and_what_has_not_changed_is_left_alone(course: Path) -> None:
    done = grade(course, "--workers", "2")
    assert (done.exit_code, done.stdout) == (
        0,
        "4 students: 4 graded, 0 unchanged, 0 wait for a person, 0 not graded\n",
    )
    assert {student: points(course, student) for student in CLASS} == {
        student: expected(solved) for student, solved in CLASS.items()
    }
    written = {path: path.stat().st_mtime_ns for path in (course / "autograded").rglob("*.ipynb")}
    assert len(written) == NOTEBOOKS

    assert grade(course).stdout == "4 students: 0 graded, 4 unchanged, 0 wait for a person, 0 not graded\n"
    assert {path: path.stat().st_mtime_ns for path in (course / "autograded").rglob("*.ipynb")} == written

    sign(course / "submitted" / "bob" / UNIT, "second thoughts")
    assert grade(course).stdout == "4 students: 1 graded, 3 unchanged, 0 wait for a person, 0 not graded\n"
    again = grade(course, "--student", "ada", "--again")
    assert again.stdout == "1 students: 1 graded, 0 unchanged, 0 wait for a person, 0 not graded\n"


def _dies_once(source: str, unit: str, seeds: Sequence[int], sandbox: str) -> list[str]:
    """What a worker runs that the system ends, the first time."""
    with contextlib.suppress(FileExistsError), open(os.environ["DIES_ONCE"], "x"):
        os.kill(os.getpid(), signal.SIGKILL)
    return JUDGE_TEXT(source, unit, seeds, sandbox)  # type: ignore[arg-type]


JUDGE_TEXT = batches.judge_text


def test_a_worker_that_dies_costs_nobody_a_grade(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool breaks under the first submissions; they are judged in a new one."""
    broken = course / "broken"
    unit = registry.unit(UNIT)
    context = multiprocessing.get_context("fork")

    def make() -> Executor:
        return ProcessPoolExecutor(1, context)

    monkeypatch.setattr(batches, "judge_text", _dies_once)
    monkeypatch.setenv("DIES_ONCE", str(broken))
    done = list(Batch(course, unit, make, 1, "require").grade(["bob", "cem"]))
    assert broken.exists()
    assert sorted((each.student, each.trouble) for each in done) == [("bob", ""), ("cem", "")]
    assert points(course, "bob") == expected(CLASS["bob"])


def test_one_student_who_cannot_be_graded_stops_nobody(course: Path) -> None:
    shutil.rmtree(course / "submitted" / "bob" / UNIT)
    os.symlink(course / "submitted" / "ada" / UNIT, course / "submitted" / "bob" / UNIT)
    (course / "submitted" / "dot" / UNIT / name_of(STEPS[0])).write_text("{")
    done = grade(course, *(f"--student={student}" for student in ("bob", "cem", "dot")))
    assert done.exit_code == 1
    first, last = done.stdout.splitlines()
    assert first.startswith("bob: NOT GRADED, ") and "link" in first
    assert last == "3 students: 2 graded, 0 unchanged, 0 wait for a person, 1 not graded"
    assert points(course, "dot") == expected((STEPS[3],))


def test_what_the_judge_cannot_tell_waits_for_a_person(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graders.course.judging.judge", _breaks)
    context = multiprocessing.get_context("fork")
    batch = Batch(course, registry.unit(UNIT), lambda: ProcessPoolExecutor(1, context), 1, "require")
    (done,) = batch.grade(["bob"])
    assert (done.trouble, done.undecided) == ("", (STEPS[0],))  # the one that bob has handed in
    assert points(course, "bob") == dict.fromkeys(STEPS, 0)
    assert grades(course)["bob"][STEPS[0]][2]
    monkeypatch.undo()
    (done,) = batch.grade(["bob"])  # it was not written down as graded: another run may tell
    assert (done.changed, done.undecided) == (True, ())
    assert points(course, "bob") == expected(CLASS["bob"])


def _breaks(*_: object, **__: object) -> None:
    raise RuntimeError("a fault of the judge's")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--course", "nowhere"], "nowhere is no course: make one with `recovery-lab course create"),
        (["--student", "zoe"], "zoe has handed in nothing"),
        (["--scheduler", "tcp://127.0.0.1:9"], "no Dask scheduler answers at tcp://127.0.0.1:9"),
    ],
)
def test_wrong_usage_is_one_line(course: Path, arguments: list[str], said: str) -> None:
    done = grade(course, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr and done.stderr.count("\n") == 1


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """A Dask scheduler and two workers, each a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(nbgrader_run.ROOT)}
    where = tmp_path / "scheduler.json"
    host = ["--host", "127.0.0.1", "--no-dashboard"]
    options = ["--nthreads", "1", "--local-directory", str(tmp_path), "--name"]
    commands = [
        ["distributed.cli.dask_scheduler", *host, "--port", "0", "--scheduler-file", str(where)],
        *[
            ["distributed.cli.dask_worker", "--scheduler-file", str(where), *host, *options, str(number)]
            for number in range(2)
        ],
    ]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with open(tmp_path / "dask.log", "ab") as log:
                started.append(
                    subprocess.Popen(
                        [sys.executable, "-m", *command], cwd=tmp_path, env=environment, stdout=log, stderr=log
                    )
                )
            deadline = time.monotonic() + DEADLINE
            while not where.exists():
                assert time.monotonic() < deadline, (tmp_path / "dask.log").read_text()
                time.sleep(0.05)
        yield str(json.loads(where.read_text())["address"])
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=DEADLINE)


def test_a_cluster_judges_as_this_machine_does(course: Path, scheduler: str) -> None:
    done = grade(course, "--scheduler", scheduler, "--workers", "2")
    assert (done.exit_code, done.stdout) == (
        0,
        "4 students: 4 graded, 0 unchanged, 0 wait for a person, 0 not graded\n",
    )
    assert {student: points(course, student) for student in CLASS} == {
        student: expected(solved) for student, solved in CLASS.items()
    }


@pytest.mark.slow
def test_a_batch_that_is_killed_again_and_again_grades_everybody_once(tmp_path: Path) -> None:
    course = new_class(
        tmp_path / "course", {"a": (), f"b-{STEPS[0]}": (STEPS[0],), f"c-{STEPS[3]}": (STEPS[3],)}, whole=False
    )
    assert grade(course).exit_code == 0  # the gradebook is there, and the verdicts are
    hand_in(course, f"d-{STEPS[3]}", (STEPS[3],), whole=False)  # this one is still to be judged
    seed = random.Random().randrange(10**6)
    script = Path(__file__).with_name("killed_batch.py")
    done = nbgrader_run.run(
        script.parent, script.name, str(course), str(seed), str(KILLS), str(LONGEST_LIFE), expect=None
    )
    assert done.returncode == 0, f"seed {seed}:\n{done.stdout}{done.stderr}"
    killed, finished = map(int, done.stdout.split())
    assert killed >= KILLS and finished >= 1
