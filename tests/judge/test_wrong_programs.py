"""Every wrong program is caught by the rule that it names, costs its own step only, and is told the same way each time.

The whole text of its verdict stands beside it (`tests/wrong/<unit>/<step>/<name>.txt`). After a change that is meant,
`python -m pytest tests/judge/test_wrong_programs.py --record` writes the texts anew; read the difference.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import corpus
import pytest

from graders.judge import judge
from graders.registry import units
from graders.report import text
from graders.verdict import Exploration, Outcome, Verdict

SEED = 7
RECORDED_ON = (3, 11)  # the texts hold Python's own messages, which other versions word differently


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All wrong programs. Where the command line asks for a part, the first of every other rule: Python 3.12 has those
    that 3.13 has not.
    """
    if "program" not in metafunc.fixturenames:
        return
    programs = [(unit.name, program) for unit in units() for program in corpus.wrong_programs(unit.name)]
    if metafunc.config.getoption("--in-part"):
        first = {(unit, program.rule): (unit, program) for unit, program in reversed(programs)}
        programs = list(first.values())[sys.version_info.minor % 2 :: 2]
    metafunc.parametrize(("unit", "program"), programs, ids=[f"{unit}/{program}" for unit, program in programs])


def golden_text(verdict: Verdict) -> str:
    """The report without the numbers of the exploration, which depend on how Python compiles a line."""
    return text.render(replace(verdict, exploration=Exploration())) + "\n"


def test_a_wrong_program_is_caught(unit: str, program: corpus.WrongProgram, request: pytest.FixtureRequest) -> None:
    verdict = judge(program.source(corpus.reference(unit)), unit=unit, seed=SEED, ahead=False)
    findings = [finding for step in verdict.steps for finding in step.rules]
    failed = [finding.rule for finding in findings if finding.outcome is Outcome.FAIL]

    assert not verdict.broken, [finding.message for finding in findings if finding.outcome is Outcome.ERROR]
    assert program.rule in failed
    assert [step.step for step in verdict.steps if not step.passed] == [program.step]

    golden = corpus.TESTS / "wrong" / unit / program.step / f"{program.name}.txt"
    if request.config.getoption("--record"):
        golden.write_text(golden_text(verdict), encoding="utf-8")
    if sys.version_info[:2] == RECORDED_ON:
        assert golden_text(verdict) == golden.read_text(encoding="utf-8")


def test_no_golden_text_without_its_program() -> None:
    texts = {path.with_suffix("") for path in (corpus.TESTS / "wrong").glob("*/*/*.txt")}
    programs = {path.with_suffix("") for path in (corpus.TESTS / "wrong").glob("*/*/*.toml")}
    assert texts == programs


def test_every_rule_has_a_wrong_program() -> None:
    for unit in units():
        rules = {rule.id for step in unit.steps for rule in step.rules}
        assert {program.rule for program in corpus.wrong_programs(unit.name)} == rules
