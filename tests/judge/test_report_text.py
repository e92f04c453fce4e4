"""The report as text: everything a learner needs, in an order that helps, and never a character that does harm."""

from __future__ import annotations

import textwrap

import pytest
from report_samples import MIXED, NASTY, PASSED, hostile

from graders.report import text
from graders.verdict import Exploration, Verdict

REPORT = """\
FAIL  store             1.5 of 2  1 of 3 rules kept

  THE JUDGE COULD NOT TELL store/refuses: no points lost
    The judge could not tell, through a fault of its own: OSError: no space
    This costs you nothing.

  broken store/two_openers, 0 of 0.5 points
  Two processes that open the same new file at once both succeed.

    Expected      one row
    Observed      it raised OperationalError: first line
                  second line
    In your code  client.py line 72: con.execute("BEGIN")
    Likely cause  `BEGIN` takes no lock
    Look at       the end of open_store

        publisher      receiver       store
     1. │              │              starts as last=-1 total=0 ledger={}
     2. sends `EVENT 0 7\\n`
        … 3 more …
     6. │              open_store comes back

skip  retention           0 of 2  0 of 2 rules kept

  skipped: returns, pure. Not judged: first do defines.

score   1.5 of 4
broken  store/two_openers
unknown store/refuses
        The judge itself failed there. That costs no points, and is not your mistake.
tried   659 moments at which the process can end, 18 different states among them, 36 real kills, and
        real restarts from all that they left
        SIGKILL ends a process; it does not show a power cut: half-written pages, and a disk that
        forgets what it said was stored, are not tried.
seed    20261130
again   recovery-lab check client.py --step store --step retention --seed 20261130"""


def test_the_whole_report() -> None:
    assert text.render(MIXED) == REPORT


def test_a_pass_is_short_and_says_nothing_about_power_loss() -> None:
    assert text.render(PASSED) == textwrap.dedent("""\
        pass  store               1 of 1  1 of 1 rules kept

        score   1 of 1
        seed    7
        again   recovery-lab check client.py --step store --seed 7""")


def test_time_never_shows() -> None:
    slower = Verdict(MIXED.unit, MIXED.seed, MIXED.steps, Exploration(659, 18, 36, 99.0))
    assert text.render(slower) == text.render(MIXED)


def test_the_command_names_the_file_as_the_reader_does() -> None:
    assert "check 'my work/client.py' --step store" in text.render(PASSED, file="my work/client.py")


def test_colour_changes_no_word() -> None:
    kinds = set()

    def paint(kind: str, words: str) -> str:
        kinds.add(str(kind))
        return f"\x1b[1m{words}\x1b[0m"

    coloured = text.render(MIXED, paint=paint)
    assert coloured.replace("\x1b[1m", "").replace("\x1b[0m", "") == REPORT
    assert kinds == {"pass", "fail", "error", "skipped", "strong", "faint"} - {"pass"}


@pytest.mark.parametrize("width", [0, 60, 80, 100, 132])
def test_lines_fit_the_width(width: int) -> None:
    lines = text.render(MIXED, width=width).splitlines()
    widest = max(width, 72)  # narrower than that would cut words and commands
    assert [line for line in lines if len(line) > widest and not line.startswith("again")] == []


@pytest.mark.parametrize("nasty", NASTY, ids=range(len(NASTY)))
def test_hostile_text_is_shown_and_does_nothing(nasty: str) -> None:
    report = text.render(hostile(nasty))
    assert all(char == "\n" or char.isprintable() for char in report)
    report.encode("utf-8")
    assert len(report) < 60_000
    assert report.splitlines()[-1] == "again   recovery-lab check client.py --step " + report.rpartition("--step ")[2]
    for escape in ("\\x1b[31m", "\\ud800", "\\u202e", "\\x00"):
        assert (escape in report) == (escape.encode().decode("unicode_escape") in nasty)
