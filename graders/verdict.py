"""What a judgement is made of: findings about rules, gathered by step, gathered into one verdict.

Everything here is plain data, so that it can be stored, compared and sent as JSON. How it looks to a reader is the
business of `graders.report`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

JUDGE_VERSION = "0.1.0"


class Outcome(StrEnum):
    """What came of a rule or of a step. `ERROR` is the judge's own fault and costs the learner nothing."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """What the judge found out about one rule.

    `points` are the points given, out of `max_points`. `message` says what is wrong and what to do next, in a few
    lines. `story` is the run up to the failing moment, one numbered line per event. `evidence` holds the same facts
    for programs (`expected`, `observed`, `where`): only what JSON can hold.
    """

    rule: str
    sentence: str
    outcome: Outcome
    max_points: float
    message: str = ""
    story: Sequence[str] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def points(self) -> float:
        """Points given: all of them where the judge itself broke, so that nobody pays for its fault."""
        return self.max_points if self.outcome in (Outcome.PASS, Outcome.ERROR) else 0.0


@dataclass(frozen=True)
class StepVerdict:
    """One step's findings, in the order in which its rules are written."""

    step: str
    title: str
    rules: Sequence[Finding]

    @property
    def outcome(self) -> Outcome:
        """The worst that happened to any rule; a step whose rules were all skipped is skipped."""
        outcomes = {finding.outcome for finding in self.rules}
        for worst in (Outcome.FAIL, Outcome.ERROR, Outcome.PASS):
            if worst in outcomes:
                return worst
        return Outcome.SKIPPED

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASS

    @property
    def score(self) -> float:
        return round(sum(finding.points for finding in self.rules), 6)

    @property
    def max_score(self) -> float:
        return round(sum(finding.max_points for finding in self.rules), 6)


@dataclass(frozen=True)
class Exploration:
    """How much of a program was ended and restarted: `points` at which it could stop, distinct `states`, real
    `kills`.
    """

    points: int = 0
    states: int = 0
    kills: int = 0
    seconds: float = 0.0

    def __add__(self, other: Exploration) -> Exploration:
        return Exploration(
            self.points + other.points,
            self.states + other.states,
            self.kills + other.kills,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True)
class Verdict:
    """The judgement of one file: which promises of a unit it keeps, with the seed that gives the same judgement
    again.
    """

    unit: str
    seed: int
    steps: Sequence[StepVerdict]
    exploration: Exploration = Exploration()
    judge: str = JUDGE_VERSION

    @property
    def passed(self) -> bool:
        return all(step.passed for step in self.steps)

    @property
    def broken(self) -> bool:
        """The judge itself could not tell about at least one rule."""
        return any(finding.outcome is Outcome.ERROR for step in self.steps for finding in step.rules)

    @property
    def score(self) -> float:
        return round(sum(step.score for step in self.steps), 6)

    @property
    def max_score(self) -> float:
        return round(sum(step.max_score for step in self.steps), 6)
