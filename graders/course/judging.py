"""Judging a submission with hidden inputs, and showing its student what may be shown of it.

Points come from the run with the student's own seed, which is made from the course's secret. What that run saw would
give the hidden inputs away. So where a rule fails, the submission is judged again with a seed that everybody knows, and
that run's finding is shown if the rule fails there, too; otherwise the student reads which promise is broken, no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from graders.course.submission import Submission
from graders.course.verdicts import VerdictStore
from graders.engine.rules import Unit
from graders.engine.sandbox import Mode, NoSandbox
from graders.judge import could_not_judge, judge
from graders.verdict import Exploration, Finding, Outcome, StepVerdict, Verdict

PUBLIC_SEED = 1
HIDDEN = "This promise is broken with the inputs of the course, which are not shown."
KEPT_IN_PUBLIC = f"{HIDDEN} With public ones it is kept."
COULD_NOT_TELL = "The judge could not tell, through a fault of its own. A person decides about these points."


def judged(submission: Submission, unit: Unit, seed: int, verdicts: VerdictStore, sandbox: Mode) -> Verdict:
    """The verdict on all steps, from the store where it was given before."""
    found = verdicts.find(unit, seed, submission.digest)
    if found is None:
        found, *public = verdicts_on(submission.source, unit.name, [seed, PUBLIC_SEED], sandbox)
        for verdict in (found, *public):
            verdicts.keep(unit, submission.digest, verdict)
    return found


def verdicts_on(source: str, unit: str, seeds: Sequence[int], sandbox: Mode) -> list[Verdict]:
    """The verdict with the first seed; and where a step fails, those with the others, which judge that step anew.

    The one place where a student's program is run. Raises NoSandbox where it has to be shut in and cannot.
    """
    first = _judge(source, unit, None, seeds[0], sandbox)
    failed = [step.step for step in first.steps if step.outcome is Outcome.FAIL]
    if not failed:
        return [first]
    return [first, *(_with(first, _judge(source, unit, failed, seed, sandbox)) for seed in seeds[1:])]


def _judge(source: str, unit: str, steps: Sequence[str] | None, seed: int, sandbox: Mode) -> Verdict:
    try:
        return judge(source, unit=unit, steps=steps, seed=seed, sandbox=sandbox)
    except NoSandbox:
        raise
    except Exception as error:
        return could_not_judge(error, unit=unit, steps=steps, seed=seed)


def _with(first: Verdict, again: Verdict) -> Verdict:
    """`first` with the steps that were judged again: one that passes says the same whatever the seed."""
    anew = {step.step: step for step in again.steps}
    return replace(again, steps=tuple(anew.get(step.step, step) for step in first.steps))


def shown(submission: Submission, unit: Unit, verdict: Verdict, verdicts: VerdictStore, sandbox: Mode) -> Verdict:
    """The verdict as its student may see it, with public inputs tried where they have to be."""
    failed = any(step.outcome is Outcome.FAIL for step in verdict.steps)
    return as_seen(verdict, judged(submission, unit, PUBLIC_SEED, verdicts, sandbox) if failed else None)


def as_seen(verdict: Verdict, public: Verdict | None) -> Verdict:
    """The same outcomes and points, nothing of what the hidden inputs were; `public` is what others have shown.

    It carries the public seed, so that the command it names shows the same findings again.
    """
    known = {finding.rule: finding for step in public.steps for finding in step.rules} if public else {}
    steps = tuple(replace(step, rules=tuple(_shown(rule, known) for rule in step.rules)) for step in verdict.steps)
    return Verdict(verdict.unit, PUBLIC_SEED, steps, Exploration(), verdict.judge)


def _shown(finding: Finding, public: dict[str, Finding]) -> Finding:
    bare = replace(finding, message="", story=(), evidence={})
    if finding.outcome is Outcome.PASS:
        return bare
    if finding.outcome is Outcome.SKIPPED:
        return replace(bare, message=f"Not judged: first make {finding.rule.partition('/')[0]}/defines pass.")
    if finding.outcome is Outcome.ERROR:
        return replace(bare, message=COULD_NOT_TELL)
    known = public.get(finding.rule)
    if known is not None and known.outcome is Outcome.FAIL:
        return known
    kept = known is not None and known.outcome is Outcome.PASS
    return replace(bare, message=KEPT_IN_PUBLIC if kept else HIDDEN)


@dataclass
class Paper:
    """One student's submission while its notebooks are graded one after the other: it is read and judged once."""

    submission: Submission
    unit: Unit
    seed: int
    verdicts: VerdictStore
    sandbox: Mode

    @cached_property
    def verdict(self) -> Verdict:
        return judged(self.submission, self.unit, self.seed, self.verdicts, self.sandbox)

    @cached_property
    def shown(self) -> Verdict:
        """The verdict as the student may see it."""
        return shown(self.submission, self.unit, self.verdict, self.verdicts, self.sandbox)


def one_step(verdict: Verdict, step: str) -> StepVerdict:
    """What a verdict says about one step. KeyError where it says nothing."""
    for found in verdict.steps:
        if found.step == step:
            return found
    raise KeyError(f"the verdict says nothing about {step}")


def sure_points(step: StepVerdict) -> float:
    """The points of the rules that are kept. Those about which the judge could not tell wait for a person."""
    sure = math.fsum(finding.max_points for finding in step.rules if finding.outcome is Outcome.PASS)
    return min(max(round(sure, 6), 0.0), step.max_score)
