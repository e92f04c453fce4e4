"""Right programs in other styles get full marks, and so does the reference, with both ways of starting a child."""

from __future__ import annotations

import sys

import corpus
import pytest

from graders.engine.processes import Method
from graders.judge import judge
from graders.registry import units
from graders.verdict import Outcome, Verdict

METHODS: tuple[Method, ...] = ("fork", "spawn")
PROGRAMS = [(unit.name, program) for unit in units() for program in corpus.right_programs(unit.name)]


def complaints(verdict: Verdict) -> list[str]:
    return [
        f"{finding.rule}: {finding.outcome}\n{finding.message}\n" + "\n".join(finding.story)
        for step in verdict.steps
        for finding in step.rules
        if finding.outcome is not Outcome.PASS
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All right programs, or where the command line asks for a part, every fourth: Python 3.12 has others than 3.13."""
    if "program" in metafunc.fixturenames:
        part = metafunc.config.getoption("--in-part")
        programs = PROGRAMS[sys.version_info.minor % 2 :: 4] if part else PROGRAMS
        metafunc.parametrize(("unit", "program"), programs, ids=[f"{unit}/{program}" for unit, program in programs])


def test_a_right_program_gets_full_marks(unit: str, program: corpus.RightProgram) -> None:
    verdict = judge(program.source(), unit=unit, seed=7)
    assert complaints(verdict) == []
    assert verdict.score == verdict.max_score


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("unit", [unit.name for unit in units()])
def test_the_reference_gets_full_marks_by_either_method(unit: str, method: Method) -> None:
    verdict = judge(corpus.reference(unit), unit=unit, seed=11, method=method)
    assert complaints(verdict) == []
    assert verdict.exploration.kills > 100


@pytest.mark.parametrize("name", ["framing/dollar", "store/check_then_create", "atomic_apply/two_transactions"])
def test_fork_and_spawn_give_the_same_verdict(name: str) -> None:
    (program,) = (program for program in corpus.wrong_programs("receiver") if str(program) == name)
    source = program.source(corpus.reference("receiver"))
    forked, spawned = (judge(source, steps=[program.step], seed=3, method=method) for method in METHODS)
    assert not forked.passed
    assert forked.steps == spawned.steps
