"""What every report is made of: a finding's rows, a story's events, numbers and words as a reader likes them.

Whatever a learner's program has said may stand in a verdict. `visible` makes it harmless to look at: nothing that
moves a cursor, colours a terminal, turns the reading direction or breaks an encoding comes through.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from graders import registry
from graders.engine.story import Lane
from graders.verdict import Exploration, Finding, Outcome, StepVerdict, Verdict

LABELS = ("Expected", "Observed", "In your code", "Likely cause", "Look at")
LONGEST_TEXT = 2000  # characters of one row or one event; a program may return megabytes
DEFAULT_UNIT = "receiver"
LIMITS = (
    "SIGKILL ends a process; it does not show a power cut: half-written pages, and a disk that forgets what it said "
    "was stored, are not tried."
)

_ROW = re.compile(f"({'|'.join(LABELS)}): (.*)")
_EVENT = re.compile(r"\s*(\d+)\. (\w+)\s*\| (.*)", re.DOTALL)


@dataclass(frozen=True)
class Row:
    """One row of a finding's message; the label is empty where the text speaks for itself."""

    label: str
    text: str


@dataclass(frozen=True)
class Event:
    """One event of a story. There is no lane and no number for the line that says how many events were left out."""

    number: str
    lane: Lane | None
    text: str


def visible(text: str) -> str:
    """The text with every character that does not print, line feeds apart, written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char == "\n" or char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")


def shorten(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text, cut where it is longer than anyone reads; then it says how long it was."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters in all)"


def rows(finding: Finding) -> list[Row]:
    """The message cut at its labels; a line without one goes on with the row before it."""
    found: list[Row] = []
    for line in finding.message.split("\n"):
        if match := _ROW.match(line):
            found.append(Row(match[1], match[2]))
        elif found and found[-1].label:
            found[-1] = Row(found[-1].label, f"{found[-1].text}\n{line}")
        elif line:
            found.append(Row("", line))
    return [Row(row.label, visible(shorten(row.text))) for row in found]


def events(finding: Finding) -> list[Event]:
    lanes = {name: lane for lane, name in lanes_of(finding.rule).items()}
    return [_event(line, lanes) for line in finding.story]


def lanes_of(rule: str) -> dict[Lane, str]:
    """What the unit of a rule calls its lanes."""
    step = rule.partition("/")[0]
    every = {step.name: unit for unit in registry.units() for step in unit.steps}
    return dict(zip(Lane, every.get(step, registry.unit(DEFAULT_UNIT)).lanes, strict=True))


def _event(line: str, lanes: Mapping[str, Lane]) -> Event:
    match = _EVENT.fullmatch(line)
    if match is None or match[2] not in lanes:
        return Event("", None, visible(shorten(line.strip())))
    return Event(match[1], lanes[match[2]], visible(shorten(match[3])))


def with_outcome(step: StepVerdict, outcome: Outcome) -> list[Finding]:
    return [finding for finding in step.rules if finding.outcome is outcome]


def names(findings: Iterable[Finding]) -> str:
    """The rules' names within their step, which the reader knows already."""
    return ", ".join(visible(finding.rule.rpartition("/")[2]) for finding in findings)


def why_skipped(findings: Sequence[Finding]) -> str:
    """The reasons why rules were skipped; mostly one for all."""
    return " ".join(dict.fromkeys(visible(shorten(finding.message)) for finding in findings if finding.message))


def count(step: StepVerdict) -> str:
    """How many of a step's rules are kept, in words."""
    return f"{len(with_outcome(step, Outcome.PASS))} of {len(step.rules)} rules kept"


def points(number: float) -> str:
    """Points without needless digits."""
    return format(number, "g")


def explored(exploration: Exploration) -> str:
    """What an exploration did, or "" where none ran. Without its seconds, so that equal verdicts read equal."""
    if not exploration.points:
        return ""
    return (
        f"{exploration.points} moments at which the process can end, {exploration.states} different states among them, "
        f"{exploration.kills} real kills, and real restarts from all that they left"
    )


def file_name(verdict: Verdict) -> str:
    """The unit's file."""
    return registry.unit(verdict.unit).file_name


def replay_command(verdict: Verdict, file: str, finding: Finding) -> str:
    """The command that makes the one run again in which the rule broke, or "" where it was no run with crashes."""
    crashes = finding.evidence.get("crashes")
    if not crashes:
        return ""
    words = ["recovery-lab", "replay", file, finding.rule, *map(str, crashes)]
    words += ["--unit", verdict.unit] if verdict.unit != DEFAULT_UNIT else []
    return visible(shlex.join([*words, "--seed", str(verdict.seed)]))


def command(verdict: Verdict, file: str) -> str:
    """The command that gives this verdict again."""
    words = ["recovery-lab", "check", file]
    words += ["--unit", verdict.unit] if verdict.unit != DEFAULT_UNIT else []
    judged = [step.step for step in verdict.steps]
    if judged != [step.name for step in registry.unit(verdict.unit).steps]:
        words += [word for step in judged for word in ("--step", step)]
    return visible(shlex.join([*words, "--seed", str(verdict.seed)]))
