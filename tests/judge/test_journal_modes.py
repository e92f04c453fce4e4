"""The exploration in every journal mode that a learner may choose, and of sessions that end early or meet a gap."""

from __future__ import annotations

import corpus
import pytest

from graders.judge import CrashMap, crash_map

MODES = ("DELETE", "TRUNCATE", "PERSIST", "WAL")
# Stands before the first cell, so that it goes with every step, whatever way a program has of connecting.
CHOSEN = """
import sqlite3 as _sqlite3
_connect = _sqlite3.connect
def _in_mode(*arguments, **named):
    con = _connect(*arguments, **named)
    if con.execute("PRAGMA journal_mode={mode}").fetchone()[0] != "{mode}".lower():
        raise SystemExit("SQLite does not take the mode {mode}")
    return con
_sqlite3.connect = _in_mode
"""
FUTURE = "from __future__ import annotations\n"
RIGHT = corpus.right_programs("receiver")
OWN = [program for program in RIGHT if "journal_mode" in program.source()]  # these choose by themselves
OTHERS = [program for program in RIGHT if program not in OWN]
TURNS = [(program, MODES[number % len(MODES)]) for number, program in enumerate(OTHERS)]
REST = [(program, mode) for program in OTHERS for mode in MODES if (program, mode) not in TURNS]


def explored(source: str, mode: str, *, thorough: bool = True) -> CrashMap:
    head = FUTURE if FUTURE in source else ""
    return crash_map(head + CHOSEN.format(mode=mode) + source.replace(FUTURE, "", 1), seed=7, thorough=thorough)


def expect_all_fine(found: CrashMap) -> None:
    assert found.finding is None, found.finding.message
    assert found.rule == "reconnect/killed_anywhere"
    assert found.exploration.points > 2000
    assert not [fate for fate in found.fates if fate.broken]


@pytest.mark.parametrize("mode", MODES)
def test_the_reference_is_fine_everywhere(mode: str) -> None:
    expect_all_fine(explored(corpus.reference("receiver"), mode))


@pytest.mark.slow
@pytest.mark.parametrize(("program", "mode"), TURNS, ids=[f"{program}-{mode}" for program, mode in TURNS])
def test_a_right_program_is_fine_everywhere(program: corpus.RightProgram, mode: str) -> None:
    expect_all_fine(explored(program.source(), mode, thorough=False))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("program", "mode"), REST, ids=[f"{program}-{mode}" for program, mode in REST])
def test_a_right_program_is_fine_in_the_other_modes(program: corpus.RightProgram, mode: str) -> None:
    expect_all_fine(explored(program.source(), mode))


@pytest.mark.slow
@pytest.mark.parametrize("program", OWN, ids=str)
def test_so_is_one_that_chooses_by_itself(program: corpus.RightProgram) -> None:
    expect_all_fine(crash_map(program.source(), seed=7, thorough=True))
