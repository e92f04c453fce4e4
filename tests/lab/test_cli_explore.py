"""`recovery-lab replay` and `recovery-lab map`, as somebody types them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import corpus
import pytest

from graders.judge import judge
from graders.report import html, parts, text
from graders.verdict import Finding, Verdict
from lab.bootstrap import ROOT

REFERENCE = corpus.REFERENCES["receiver"]
TORN = next(each for each in corpus.wrong_programs("receiver") if str(each) == "atomic_apply/ledger_committed_first")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lab.cli", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("torn") / "client.py"
    file.write_text(TORN.source(corpus.reference("receiver")))
    return file


@pytest.fixture(scope="module")
def verdict(torn: Path) -> Verdict:
    return judge(torn.read_text(), steps=["atomic_apply"], seed=3)


@pytest.fixture(scope="module")
def finding(verdict: Verdict) -> Finding:
    return next(rule for rule in verdict.steps[0].rules if rule.rule == "atomic_apply/killed_anywhere")


def test_a_report_names_a_command_that_makes_the_same_run_again(torn: Path, verdict: Verdict, finding: Finding) -> None:
    words = parts.replay_command(verdict, str(torn), finding)
    assert words in text.render(verdict, file=str(torn))
    assert words in html.render(verdict, file=str(torn))
    again = command(*words.split()[1:])
    assert again.returncode == 1
    for row in parts.rows(finding):
        assert row.text.split("\n")[0][:60] in again.stdout
    for event in parts.events(finding):
        assert event.text[:40] in again.stdout


def test_a_report_draws_the_story(verdict: Verdict) -> None:
    assert "data:image/svg+xml;base64," in html.render(verdict)


def test_a_run_that_keeps_the_promise_is_told_too() -> None:
    kept = command("replay", str(REFERENCE), "atomic_apply/killed_anywhere", "116:line:1", "116:line:1", "--seed", "3")
    assert kept.returncode == 0, kept.stderr
    assert kept.stdout.count("the power goes out") == 2
    assert "kept    the promise is kept in this run" in kept.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["atomic_apply/killed_anywhere", "116:line:999"], "does not come by 116:line:999"),
        (["atomic_apply/killed_anywhere", "here"], "a stop looks like"),
        (["atomic_apply/killed_anywhere", "1:nowhere:1"], "a stop looks like"),
        (["framing/range", "1:line:1"], "has no runs to replay"),
        (["nonsense/range", "1:line:1"], "no step of receiver"),
    ],
)
def test_nonsense_is_answered_in_one_line(arguments: list[str], told: str) -> None:
    refused = command("replay", str(REFERENCE), *arguments)
    assert refused.returncode == 2
    assert told in refused.stderr and refused.stderr.count("\n") == 1
    assert not refused.stdout


def test_the_map_marks_the_lines_between_two_commits(torn: Path) -> None:
    drawn = command("map", str(torn), "--seed", "3")
    assert drawn.returncode == 1, drawn.stderr
    lines = drawn.stdout.splitlines()
    source = torn.read_text().splitlines()
    marked = {int(line[:4]): line[5:6] for line in lines if line[:4].strip().isdigit()}
    assert len(marked) >= len(source) - 120  # the steps up to the one that fails, each line once
    total = next(number for number, line in enumerate(source, start=1) if "total = total + ?" in line)
    begin = next(
        number for number, line in enumerate(source, start=1) if line.strip() == 'con.execute("BEGIN IMMEDIATE")'
    )
    assert marked[begin] == "✓"
    assert marked[total] == "✗"
    assert "·" in marked.values()
    assert any("breaks: expected total is the ledger's sum" in line for line in lines)


def test_the_map_of_the_reference_is_a_page_too(tmp_path: Path) -> None:
    page = tmp_path / "map.html"
    drawn = command("map", str(REFERENCE), "--seed", "3", "--html", str(page))
    assert drawn.returncode == 0, drawn.stderr
    content = page.read_text()
    assert "BREAKS" not in content and "fine" in content
    assert content.count("<tr") > 200
    assert "the publisher has seen" in content


def test_what_only_a_second_crash_breaks_is_told_below_the_map(tmp_path: Path) -> None:
    name = "reconnect/total_repaired_in_two_steps"
    (repaired,) = [each for each in corpus.wrong_programs("receiver") if str(each) == name]
    file = tmp_path / "client.py"
    file.write_text(repaired.source(corpus.reference("receiver")))
    drawn = command("map", str(file), "--seed", "3")
    assert drawn.returncode == 1, drawn.stderr
    above, _, below = drawn.stdout.partition("A second crash, while the program recovers from the first")
    assert "✗" not in above.split("\n\n", 1)[1]
    assert below.count("the power goes out") == 2
    page = tmp_path / "map.html"
    assert command("map", str(file), "--seed", "3", "--html", str(page)).returncode == 1
    assert "The two crashes, drawn." in page.read_text()


def test_a_file_without_a_step_to_end_has_no_map(tmp_path: Path) -> None:
    file = tmp_path / "client.py"
    file.write_text("# %% framing\nclass ProtocolError(ValueError): pass\ndef parse_line(line): return 0, 0\n")
    refused = command("map", str(file))
    assert refused.returncode == 2
    assert "the first step with a map is store" in refused.stderr


def test_a_program_that_fails_by_itself_has_no_map(tmp_path: Path) -> None:
    file = tmp_path / "client.py"
    file.write_text("# %% store\ndef open_store(path): raise OSError('no')\n")
    refused = command("map", str(file))
    assert refused.returncode == 1
    assert "no map yet: store/first_open_killed fails before anything is ended" in refused.stdout
