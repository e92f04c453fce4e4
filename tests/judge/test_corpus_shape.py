"""The corpus itself is well formed; whether the judge agrees with it is the other tests' business."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.corpus import (
    TESTS,
    RightProgram,
    WrongProgram,
    reference,
    right_programs,
    section,
    steps,
    wrong_programs,
)

UNIT = "receiver"
REFERENCE = reference(UNIT)
WRONG = wrong_programs(UNIT)
RIGHT = right_programs(UNIT)


def test_there_are_enough_of_both() -> None:
    assert len(WRONG) >= 60
    assert len(RIGHT) >= 10


def test_no_file_is_stray() -> None:
    wrong = {f"{UNIT}/{program}{kind}" for program in WRONG for kind in (".toml", ".txt")}
    assert {str(path.relative_to(TESTS / "wrong")) for path in (TESTS / "wrong").rglob("*.*")} == wrong
    right = {f"{UNIT}/{program}.py" for program in RIGHT}
    assert {str(path.relative_to(TESTS / "right")) for path in (TESTS / "right").glob("*/*.*")} == right


def test_every_step_has_wrong_programs() -> None:
    assert Counter(program.step for program in WRONG).keys() == set(steps(UNIT))


def test_no_two_are_the_same_program() -> None:
    assert [text for text, times in Counter(p.source(REFERENCE) for p in WRONG).items() if times > 1] == []


@pytest.mark.parametrize("program", WRONG, ids=str)
def test_wrong_program(program: WrongProgram) -> None:
    assert program.rule.split("/")[0] == program.step
    assert program.why == program.why.strip() and "\n" not in program.why and len(program.why) >= 20
    wrong = program.source(REFERENCE)
    assert wrong != REFERENCE
    assert ast.dump(compiled(wrong)) != ast.dump(compiled(REFERENCE)), "the change is layout only"
    assert_only_its_section_differs(program, wrong)


def assert_only_its_section_differs(program: WrongProgram, wrong: str) -> None:
    begin, end = section(REFERENCE, program.step)
    wrong_begin, wrong_end = section(wrong, program.step)
    assert (wrong[:wrong_begin], wrong[wrong_end:]) == (REFERENCE[:begin], REFERENCE[end:])


@pytest.mark.parametrize("program", RIGHT, ids=str)
def test_right_program(program: RightProgram) -> None:
    source = program.source()
    compiled(source)
    assert source != REFERENCE
    found = [step for step in steps(UNIT) if section(source, step)]
    assert sorted(found, key=lambda step: section(source, step)) == list(steps(UNIT))


def compiled(source: str) -> ast.Module:
    tree = ast.parse(source)
    compile(tree, "client.py", "exec", dont_inherit=True)
    return tree


def test_an_old_text_that_stands_twice_is_refused() -> None:
    program = WrongProgram("store", "twice", "store/schema", "stands twice", "except BaseException:", "except:")
    with pytest.raises(ValueError, match="stands 2 times"):
        program.source(REFERENCE)


def test_a_change_outside_the_section_is_refused() -> None:
    program = WrongProgram("store", "outside", "store/schema", "elsewhere", "class Gap(Exception):", "class Gap:")
    with pytest.raises(ValueError, match="not in the section 'store'"):
        program.source(REFERENCE)
