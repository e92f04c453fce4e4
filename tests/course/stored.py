"""A class whose verdicts lie in the store already: it is graded without a judge, and so at once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from nbgrader_run import UNIT

from graders import registry
from graders.course import judging, secret
from graders.course.batch import Batch, Done
from graders.course.submission import read
from graders.course.verdicts import NAME, VerdictStore
from graders.verdict import Finding, Outcome, StepVerdict, Verdict

RECEIVER = registry.unit(UNIT)
HIDDEN = "8723465"  # stands for what only the hidden inputs show
Broken = Mapping[str, str]  # a rule to the learner's line that its finding points at


class Never(Executor):
    """Nothing is to be judged."""

    def submit(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a program is judged")


def batch(course: Path) -> Batch:
    return Batch(course, RECEIVER, Never, 1, "off")


def grade(course: Path, student: str, broken: Broken) -> Done:
    """Put verdicts on what a student has handed in into the store, and write the grade from them."""
    keep(course, student, broken)
    (done,) = batch(course).grade([student])
    assert not done.trouble, done
    return done


def keep(course: Path, student: str, broken: Broken) -> None:
    digest = read(course / "submitted" / student / UNIT, RECEIVER).digest
    seed = secret.seed_of(secret.read(course), UNIT, student)
    for each, seen in ((seed, HIDDEN), (judging.PUBLIC_SEED, "public")):
        VerdictStore(course / NAME).keep(RECEIVER, digest, verdict(each, broken, seen))


def verdict(seed: int, broken: Broken, seen: str) -> Verdict:
    """A whole verdict in which these rules are broken, and no others."""
    steps = []
    for step in RECEIVER.steps:
        rules = [(f"{step.name}/defines", "The section defines its names.", 0.0)]
        rules += [(rule.id, rule.sentence, float(rule.points)) for rule in step.rules]
        steps.append(StepVerdict(step.name, step.title, tuple(_finding(*rule, broken, seen) for rule in rules)))
    assert {*broken} <= {finding.rule for step in steps for finding in step.rules}
    return Verdict(UNIT, seed, tuple(steps))


def _finding(rule: str, sentence: str, points: float, broken: Broken, seen: str) -> Finding:
    if rule not in broken:
        return Finding(rule, sentence, Outcome.PASS, points)
    evidence = {
        "expected": f"{seen} is kept",
        "observed": f"{seen} is lost",
        "where": {"file": "client.py", "line": 7, "text": broken[rule]},
    }
    message = f"Expected: {seen} is kept\nObserved: {seen} is lost"
    return Finding(rule, sentence, Outcome.FAIL, points, message, (f" 1. receiver | {seen}",), evidence)
