"""How far a learner has come: what each step's last judgement was, noted beside the learner's file.

The notes decide nothing: points come from judging. Losing them loses no work.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from graders.engine.rules import Unit
from graders.engine.section_writer import is_starter, section_text
from graders.report.html import environment
from graders.report.parts import points
from graders.verdict import Outcome, Verdict
from lab import learner_file

NOTES = "progress.json"
CELL = 28  # characters that a bar is wide


class State(StrEnum):
    """Where a learner is with a step."""

    PASSED = "passed"
    PART = "broken"
    CHANGED = "changed since it was judged"
    WRITTEN = "written, not judged yet"
    STARTER = "not written yet"


MARKS = {State.PASSED: "✓", State.PART: "✗", State.CHANGED: "~", State.WRITTEN: "…", State.STARTER: "·"}


@dataclass(frozen=True)
class Row:
    """One step in the table: points are those of the last judgement of exactly this text, else 0."""

    step: str
    title: str
    state: State
    points: float
    max_points: float
    gave_up: bool


def note(path: Path, source: str, unit: Unit, verdict: Verdict) -> None:
    """Note what came of judging `source`, the text of the file at `path`."""
    names = [step.name for step in unit.steps]
    with learner_file.locked(path):
        notes = _read(path)
        for step in verdict.steps:
            if step.outcome in (Outcome.PASS, Outcome.FAIL):
                text = section_text(source, step.step, names)
                judged = {"text": learner_file.fingerprint(text or ""), "passed": step.passed, "points": step.score}
                notes[step.step] = notes.get(step.step, {}) | judged
        _write(path, notes)


def give_up(path: Path, step: str) -> None:
    """Note that the learner has looked at the solution of a step before it passed."""
    with learner_file.locked(path):
        notes = _read(path)
        notes[step] = notes.get(step, {}) | {"gave_up": True}
        _write(path, notes)


def rows(path: Path, source: str, unit: Unit) -> list[Row]:
    """The steps in order, as they stand in `source`."""
    notes = _read(path)
    return [_row(step.name, step.title, step.max_score, source, unit, notes.get(step.name, {})) for step in unit.steps]


def _row(step: str, title: str, most: float, source: str, unit: Unit, noted: dict[str, Any]) -> Row:
    text = section_text(source, step, [each.name for each in unit.steps])
    given, gave_up = 0.0, noted.get("gave_up") is True
    if text is None or is_starter(text):
        state = State.STARTER
    elif "text" not in noted:
        state = State.WRITTEN
    elif noted["text"] != learner_file.fingerprint(text):
        state = State.CHANGED
    else:
        state = State.PASSED if noted.get("passed") is True else State.PART
        found = noted.get("points")
        given = min(max(float(found), 0.0), most) if isinstance(found, int | float) else 0.0
    return Row(step, title, state, given, most, gave_up)


def next_step(table: Sequence[Row]) -> Row | None:
    """The first step that does not pass yet."""
    return next((row for row in table if row.state is not State.PASSED), None)


def as_text(table: Sequence[Row]) -> str:
    done, most = sum(row.points for row in table), sum(row.max_points for row in table)
    width = max(len(row.step) for row in table)
    lines = [
        f"{MARKS[row.state]} {row.step:<{width}}  {points(row.points):>4} of {points(row.max_points)}  "
        f"{row.state}{', solution seen' if row.gave_up else ''}"
        for row in table
    ]
    filled = round(CELL * done / most) if most else 0
    return "\n".join(
        [*lines, f"[{'#' * filled}{'-' * (CELL - filled)}] {points(done)} of {points(most)}. {_next(table)}"]
    )


def as_html(table: Sequence[Row]) -> str:
    """The same as a table. Colours only repeat what the words say."""
    done, most = sum(row.points for row in table), sum(row.max_points for row in table)
    return _template().render(rows=table, marks=MARKS, done=done, most=most, next=_next(table))


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    here = jinja2.FileSystemLoader(Path(__file__).parent)
    return environment().overlay(loader=here).get_template("steps.html.j2")


def _next(table: Sequence[Row]) -> str:
    row = next_step(table)
    if row is None:
        return "Everything passes."
    return f"Next: {row.step}, {row.title[:1].lower()}{row.title[1:]}." if row.title else f"Next: {row.step}."


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Step to what is noted of it; {} where the notes are missing or damaged."""
    try:
        stored = json.loads((path.with_name(learner_file.MEMORY) / NOTES).read_text("utf-8"))
        return {str(step): dict(noted) for step, noted in stored[path.name].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _write(path: Path, notes: dict[str, dict[str, Any]]) -> None:
    stored = json.dumps({path.name: notes}, indent=1, sort_keys=True) + "\n"
    learner_file.write(path.with_name(learner_file.MEMORY) / NOTES, stored)
