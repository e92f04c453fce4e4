"""What is known of a class: what was handed in, the gradebook, and stored verdicts. Nothing is judged here."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from graders.course import judging, secret
from graders.course.batch import students_of
from graders.course.gradebook import Gradebook, Mark, Record
from graders.course.submission import NOT_THERE, notebooks_of, read
from graders.course.verdicts import NAME as VERDICTS
from graders.course.verdicts import VerdictStore
from graders.engine.rules import Unit
from graders.verdict import Verdict


class NobodyGraded(Exception):
    """There is nothing to tell yet; the message says what to do."""


@dataclass(frozen=True)
class Result:
    """One student. Without a `record` there is no grade; `verdict` is on the program that is handed in now, with hidden
    inputs, and `seen` is the same as its student may see it.
    """

    student: str
    name: str  # "" where the gradebook has none
    handed_in: bool
    record: Record | None
    missing: frozenset[str] = frozenset()  # steps whose notebook was not handed in
    verdict: Verdict | None = None
    seen: Verdict | None = None

    def step(self, step: str) -> Mark | None:
        """The mark of a step's test cell."""
        return next((mark for mark in self.marks if mark.cell == step), None)

    @property
    def marks(self) -> tuple[Mark, ...]:
        return self.record.marks if self.record else ()

    @property
    def points(self) -> float:
        """All points together, in words and judged."""
        return round(math.fsum(mark.points for mark in self.marks), 6)

    @property
    def most(self) -> float:
        return round(math.fsum(mark.most for mark in self.marks), 6)

    @property
    def score(self) -> float:
        """What is left of the points where being late costs some."""
        return max(round(self.points - (self.record.penalty if self.record else 0), 6), 0.0)

    @property
    def trouble(self) -> str:
        """Why there is no verdict on what is handed in, or ""."""
        if not self.handed_in or (self.record and self.verdict):
            return ""
        if self.record is None:
            return "not graded yet"
        if any(mark.is_undecided for mark in self.marks):
            return "without a verdict: the judge could not tell, and a person decides"
        return "handed in anew since it was graded"


def of_class(course: Path, unit: Unit) -> list[Result]:
    """Everybody, by student id. Raises NoCourse, NoSecret, or NobodyGraded."""
    gradebook = Gradebook(course, unit, "require")  # no more than a name here: nothing is run
    key, verdicts = secret.read(course), VerdictStore(course / VERDICTS)
    records = gradebook.records() if gradebook.is_there else {}
    if not records:
        raise NobodyGraded(f"nobody is graded yet: run `recovery-lab grade {unit.name}` in {course}")
    names = gradebook.known()
    there = students_of(course, unit)  # names of folders, so that none of them leads anywhere else
    everybody = sorted({*there, *records, *names})
    results = [Result(student, names.get(student, ""), student in there, records.get(student)) for student in everybody]
    return [_with_verdict(each, course, unit, key, verdicts) if each.handed_in else each for each in results]


def _with_verdict(result: Result, course: Path, unit: Unit, key: bytes, verdicts: VerdictStore) -> Result:
    """The same, with what is known of the program that was handed in."""
    submission = read(course / "submitted" / result.student / unit.name, unit)
    absent = {problem.file for problem in submission.problems if problem.text == NOT_THERE}
    missing = frozenset(step for name, step in notebooks_of(unit).items() if name in absent)
    verdict = verdicts.find(unit, secret.seed_of(key, unit.name, result.student), submission.digest)
    if verdict is None:
        return replace(result, missing=missing)
    public = verdicts.find(unit, judging.PUBLIC_SEED, submission.digest)
    return replace(result, missing=missing, verdict=verdict, seen=judging.as_seen(verdict, public))
