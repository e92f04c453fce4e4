"""Grading a class: programs are judged in parallel, grades are written one student after the other.

Judging is done by any executor of `concurrent.futures`: it gets a program's text and a seed, and gives back a verdict
as JSON. What comes back goes into the course's store of verdicts. Then nbgrader's own autograde is run on that student
in this process, finds every verdict in the store, and is the only writer of the gradebook.

A batch may be ended at any moment. A student counts as graded when a record says so, which is written after all else,
and which names what the grade was made of. Without it the student is graded again from the beginning, and comes to the
same grade: like every receiver here, the batch may do its work twice, but it may not show twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from graders.course import history, judging, secret
from graders.course.files import Refused, open_folder, read_plain, write
from graders.course.gradebook import Gradebook
from graders.course.submission import Submission, read
from graders.course.verdicts import NAME as VERDICTS
from graders.course.verdicts import VerdictStore, from_text
from graders.engine.rules import Unit
from graders.engine.sandbox import Mode, NoSandbox
from graders.report.as_json import plain
from graders.verdict import JUDGE_VERSION

RECORDS = ".graded"
LARGEST = 200_000_000  # bytes of one file that count for whether a submission has changed
TRIES = 3  # a worker may die of what is not this student's doing
AHEAD = 2  # submissions per worker that are read before their turn: memory stays flat however large the class is

MakeExecutor = Callable[[], Executor]


@dataclass(frozen=True)
class Done:
    """What came of one student: `changed` is whether the grade was made anew; `trouble` is why there is none."""

    student: str
    changed: bool
    trouble: str = ""
    undecided: tuple[str, ...] = ()  # steps about which the judge could not tell: a person decides


@dataclass(frozen=True)
class _Work:
    student: str
    submission: Submission
    made_of: str
    seed: int


def judge_text(source: str, unit: str, seeds: Sequence[int], sandbox: Mode) -> list[str]:
    """Judge a program with the first seed, and with the others where it fails. What workers run; JSON comes back."""
    verdicts = judging.verdicts_on(source, unit, seeds, sandbox)
    return [json.dumps(plain(asdict(verdict))) for verdict in verdicts]


def students_of(course: Path, unit: Unit) -> list[str]:
    """Who has handed something in, in order."""
    folder = course / "submitted"
    return sorted(entry.name for entry in folder.iterdir() if (entry / unit.name).is_dir()) if folder.is_dir() else []


class _Pool:
    """An executor that is replaced when one of its workers dies: all that it had in hand fails then."""

    def __init__(self, make: MakeExecutor) -> None:
        self.make = make
        self.executor = make()

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.shutdown(wait=False)

    def submit(self, function: Callable[..., list[str]], *arguments: object) -> Future[list[str]]:
        try:
            return self.executor.submit(function, *arguments)
        except BrokenExecutor:
            self.executor.shutdown(wait=False)
            self.executor = self.make()
            return self.executor.submit(function, *arguments)


@contextmanager
def _cancelled_at_the_end(futures: Iterable[Future[list[str]]]) -> Iterator[None]:
    """Whatever ends a batch, nothing more is begun for it."""
    try:
        yield
    finally:
        for future in futures:
            future.cancel()


class Batch:
    """One run over a class. `grade` may be called again after whatever ended it."""

    def __init__(self, course: Path, unit: Unit, make_executor: MakeExecutor, workers: int, sandbox: Mode) -> None:
        self.course = course
        self.unit = unit
        self.make_executor = make_executor
        self.most_ahead = AHEAD * workers
        self.sandbox = sandbox
        self.gradebook = Gradebook(course, unit, sandbox)  # first of all: it says so where this is no course
        self.secret = secret.read(course)
        self.verdicts = VerdictStore(course / VERDICTS)

    def grade(self, students: Sequence[str], *, again: bool = False) -> Iterator[Done]:
        """Grade every student, each as soon as their verdict is there. `again`: also those who are graded already."""
        known = frozenset() if again else self.gradebook.students()
        todo = iter(students)
        running: dict[Future[list[str]], tuple[_Work, int]] = {}
        failed: list[tuple[_Work, int]] = []  # judged again alone: then it is clear whose fault a dead worker is
        with _Pool(self.make_executor) as pool, _cancelled_at_the_end(running):
            while True:
                if failed and not running:
                    work, tries = failed.pop()
                    running[self.submit(pool, work)] = (work, tries + 1)
                while not failed and len(running) < self.most_ahead and (student := next(todo, None)) is not None:
                    begun = self.work_on(student, known)
                    if isinstance(begun, Done):
                        yield begun
                    elif self.is_judged(begun):
                        yield self.write(begun)
                    else:
                        running[self.submit(pool, begun)] = (begun, 1)
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    work, tries = running.pop(future)
                    try:
                        self.keep(work, future.result())
                    except NoSandbox:
                        raise
                    except Exception as error:
                        if tries < TRIES:
                            failed.append((work, tries))
                        else:
                            yield Done(work.student, True, f"could not be judged: {type(error).__name__}: {error}")
                    else:
                        yield self.write(work)

    def work_on(self, student: str, known: frozenset[str]) -> _Work | Done:
        """What is to do about a student; nothing where the grade is made of exactly what is there now."""
        folder = self.course / "submitted" / student / self.unit.name
        seed = secret.seed_of(self.secret, self.unit.name, student)
        try:
            made_of = self.fingerprint(folder, seed)
        except (OSError, Refused) as error:
            return Done(student, True, f"{folder} {error}")
        if student in known and self.recorded(student) == made_of:
            return Done(student, False)
        return _Work(student, read(folder, self.unit), made_of, seed)

    def submit(self, pool: _Pool, work: _Work) -> Future[list[str]]:
        seeds = [work.seed, judging.PUBLIC_SEED]
        return pool.submit(judge_text, work.submission.source, self.unit.name, seeds, self.sandbox)

    def is_judged(self, work: _Work) -> bool:
        """Whether the store has all verdicts that a grade is made of."""
        found = self.verdicts.find(self.unit, work.seed, work.submission.digest)
        if found is None or found.passed:
            return found is not None
        return self.verdicts.find(self.unit, judging.PUBLIC_SEED, work.submission.digest) is not None

    def keep(self, work: _Work, texts: Sequence[str]) -> None:
        for text in texts:
            self.verdicts.keep(self.unit, work.submission.digest, from_text(text))

    def write(self, work: _Work) -> Done:
        """Write the student's grade, a line in their history, and then that both are written."""
        path = self._record(work.student)
        path.unlink(missing_ok=True)  # from here on the old grade is not whole: nbgrader removes its notebooks first
        trouble, undecided = self.gradebook.write(work.student)
        if trouble:
            return Done(work.student, True, trouble)
        if not undecided:  # where the judge could not tell, another run may
            points = self.gradebook.judged(work.student)
            history.append(path.parent, work.student, history.Entry(datetime.now(UTC), work.made_of, points))
            write(path, json.dumps({"made_of": work.made_of}).encode())
        return Done(work.student, True, undecided=undecided)

    def fingerprint(self, folder: Path, seed: int) -> str:
        """Names all that a grade is made of: the files handed in, the release, the seed, and the judge."""
        digest = hashlib.sha256(f"{JUDGE_VERSION}\0{seed}".encode())
        for each in (folder, self.course / "release" / self.unit.name):
            handle = open_folder(each)
            try:
                for name in sorted(os.listdir(handle)):
                    mode = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
                    content = _content(name, handle) if stat.S_ISREG(mode) else str(stat.S_IFMT(mode))
                    digest.update(b"%s\0%s\0" % (os.fsencode(name), content.encode()))
            finally:
                os.close(handle)
        return digest.hexdigest()

    def recorded(self, student: str) -> str:
        """What the student's grade was made of; "" where it is not known to be whole."""
        try:
            return str(json.loads(read_plain(str(self._record(student)), 10_000))["made_of"])
        except (OSError, Refused, ValueError, KeyError, TypeError):
            return ""

    def _record(self, student: str) -> Path:
        return self.course / RECORDS / self.unit.name / f"{student}.json"


def _content(name: str, folder: int) -> str:
    try:
        return hashlib.sha256(read_plain(name, LARGEST, folder)).hexdigest()
    except Refused as refused:
        return str(refused)
