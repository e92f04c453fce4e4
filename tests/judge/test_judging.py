"""How a file becomes a verdict: sections, stand-ins, what cannot be run, and that one mistake costs one step."""

from __future__ import annotations

import corpus
import pytest

from graders.judge import judge
from graders.registry import find_step, unit
from graders.verdict import Finding, Outcome, Verdict

REFERENCE = corpus.reference("receiver")
STEPS = [step.name for step in unit("receiver").steps]


def section_of(step: str) -> str:
    begin, end = corpus.section(REFERENCE, step)
    return REFERENCE[begin:end]


def with_section(step: str, text: str) -> str:
    """The reference with another body of one step."""
    begin, end = corpus.section(REFERENCE, step)
    return f"{REFERENCE[:begin]}\n{text}\n\n{REFERENCE[end:]}"


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {step.step: str(step.outcome) for step in verdict.steps}


def first_broken(verdict: Verdict) -> Finding:
    return next(finding for step in verdict.steps for finding in step.rules if finding.outcome is Outcome.FAIL)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def replay(log:\n", "SyntaxError"),
        ("raise RuntimeError('at import')", "RuntimeError: at import"),
        ("import sys\nsys.exit(0)", "SystemExit"),
        ("import os\nos._exit(0)", "ended by itself: exit status 0"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", "SIGTERM"),
        ("replay = 12\nclass ResyncRequired(Exception): pass", "replay is int"),
        ("class ResyncRequired(Exception): pass", "replay is missing"),
        ("while True: pass", "nothing happened for 5 s"),
        ("import sys\nfor _ in range(1000): sys.stdout.write('x' * 10**6)", "OSError"),
        ("x = 'y' * (3 << 30)", "MemoryError"),
        ("\x00", "SyntaxError"),
    ],
)
def test_a_section_that_cannot_run_costs_its_own_step(text: str, told: str) -> None:
    verdict = judge(with_section("retention", text), steps=["framing", "retention", "ack_after_commit"], seed=1)
    assert outcomes(verdict) == {"framing": "pass", "retention": "fail", "ack_after_commit": "pass"}
    broken = first_broken(verdict)
    assert broken.rule == "retention/defines"
    assert told in broken.message
    assert {finding.outcome for finding in verdict.steps[1].rules[1:]} == {Outcome.SKIPPED}
    assert verdict.steps[1].score == 0


def test_the_message_names_the_learners_own_line() -> None:
    source = with_section(
        "retention",
        "class ResyncRequired(Exception): pass\n\ndef replay(log, cursor, limit):\n    return log[cursor + 999]",
    )
    line = next(number for number, text in enumerate(source.split("\n"), start=1) if "return log[cursor + 999]" in text)
    broken = first_broken(judge(source, steps=["retention"], seed=1))
    assert f"client.py line {line}" in broken.message
    assert "return log[cursor + 999]" in broken.message


def test_without_any_marker_every_step_says_what_to_write() -> None:
    verdict = judge("print('hello')\n", seed=1)
    assert set(outcomes(verdict).values()) == {"fail"}
    assert verdict.score == 0
    for step in verdict.steps:
        assert f"`# %% {step.step}`" in step.rules[0].message


def test_an_empty_file_gets_a_verdict() -> None:
    assert judge("", seed=1).score == 0


@pytest.mark.parametrize("step", ["store", "retention", "ack_after_commit"])
def test_a_missing_step_costs_one_step(step: str) -> None:
    begin, end = corpus.section(REFERENCE, step)
    marker = REFERENCE.rindex("# %%", 0, begin)
    verdict = judge(REFERENCE[:marker] + REFERENCE[end:], steps=STEPS[:5], seed=1)
    assert [name for name, outcome in outcomes(verdict).items() if outcome != "pass"] == [step]


def test_a_step_must_not_use_what_later_ones_define() -> None:
    source = with_section("retention", section_of("retention").replace("BATCH_LIMIT = 16\n", ""))
    source = source.replace("# %% reconnect", "# %% reconnect\nBATCH_LIMIT = 16")
    verdict = judge(source, steps=["retention"], seed=1)
    assert "NameError" in first_broken(verdict).message


def test_helpers_of_a_section_that_fails_stay_in_reach() -> None:
    broken_framing = section_of("framing").replace("if abs(delta) > DELTA_LIMIT:", "if delta > DELTA_LIMIT:")
    broken_framing += "\n\ndef helper():\n    return 16\n"
    source = with_section("framing", broken_framing)
    source = source.replace("BATCH_LIMIT = 16\n", "BATCH_LIMIT = helper()\n")
    verdict = judge(source, steps=["framing", "retention"], seed=1)
    assert outcomes(verdict) == {"framing": "fail", "retention": "pass"}


def test_helpers_of_the_reference_hide_nobodys() -> None:
    broken_framing = (
        "class ProtocolError(ValueError): pass\n\nLINE_LIMIT = 'mine'\n\ndef parse_line(line): return (0, 0)\n"
    )
    source = with_section("framing", broken_framing)
    source = source.replace("BATCH_LIMIT = 16\n", "BATCH_LIMIT = 16 if LINE_LIMIT == 'mine' else 0\n")
    verdict = judge(source, steps=["framing", "retention"], seed=1)
    assert outcomes(verdict) == {"framing": "fail", "retention": "pass"}


def test_layout_is_free() -> None:
    source = REFERENCE.replace("# %% store", "#%%   store  -- the file").replace(
        "# %% retention", "# %%\n# notes\n# %% [markdown]\n# text\n# %% retention"
    )
    assert judge(source, steps=["store", "retention"], seed=1).passed


def test_a_marker_inside_a_string_is_text() -> None:
    source = with_section("retention", 'NOTE = """\n# %% store\n"""\n' + section_of("retention"))
    assert judge(source, steps=["store", "retention"], seed=1).passed


def test_the_seed_decides_the_inputs() -> None:
    source = with_section("framing", "class ProtocolError(ValueError): pass\n\ndef parse_line(line): return (0, 0)\n")
    one, same, other = (judge(source, steps=["framing"], seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one.steps[0].rules != other.steps[0].rules


def test_an_unknown_step_asks_what_was_meant() -> None:
    with pytest.raises(KeyError, match="did you mean framing"):
        find_step("framming")


def test_a_fault_of_the_judges_costs_nothing_and_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = unit("receiver").step("retention").rules[0]
    assert rule.name == "returns"

    def broken(case: object) -> None:
        raise ZeroDivisionError("in the judge")

    monkeypatch.setitem(vars(rule), "judge", broken)
    verdict = judge(REFERENCE + "\n# a file that no memory knows\n", steps=["retention"], seed=987)
    assert verdict.broken
    assert verdict.score == verdict.max_score
    assert not verdict.passed
    finding = next(one for one in verdict.steps[0].rules if one.rule == rule.id)
    assert "fault of its own" in finding.message


def test_who_kills_the_judges_helper_gains_nothing() -> None:
    killer = "import os\nclass ProtocolError(ValueError): pass\ndef parse_line(line): os.kill(os.getppid(), 9)"
    verdict = judge(with_section("framing", killer), steps=["framing"], seed=1)
    assert verdict.score == 0
    assert not verdict.broken
    assert "leaves other processes alone" in first_broken(verdict).message


def test_what_differs_from_run_to_run_is_not_told() -> None:
    text = section_of("store").replace("con = sqlite3.connect(path, isolation_level=None)", "raise OSError(path)")
    found = [first_broken(judge(with_section("store", text), steps=["store"], seed=1)) for _ in range(2)]
    assert found[0] == found[1]
    assert "recovery-lab-" not in found[0].message
