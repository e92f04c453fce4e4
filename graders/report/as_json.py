"""A verdict as one JSON object, for programs. `verdict.schema.json` beside this module says what is in it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graders.report.parts import shorten
from graders.verdict import Finding, StepVerdict, Verdict

SCHEMA = Path(__file__).with_name("verdict.schema.json")
LONGEST_TEXT = 20_000  # characters of any one text
DEEPEST_EVIDENCE = 20

_SURROGATE = re.compile("[\ud800-\udfff]")


def render(verdict: Verdict) -> str:
    """One line of JSON in ASCII, so that no encoding on its way can hurt it."""
    return json.dumps(as_object(verdict), allow_nan=False)


def as_object(verdict: Verdict) -> dict[str, Any]:
    exploration = verdict.exploration
    return {
        "unit": _text(verdict.unit),
        "judge": verdict.judge,
        "seed": verdict.seed,
        "passed": verdict.passed,
        "score": float(verdict.score),
        "max_score": float(verdict.max_score),
        "steps": [_step(step) for step in verdict.steps],
        "exploration": {
            "points": exploration.points,
            "states": exploration.states,
            "kills": exploration.kills,
            "seconds": round(exploration.seconds, 3),
        },
    }


def _step(step: StepVerdict) -> dict[str, Any]:
    return {
        "step": _text(step.step),
        "outcome": str(step.outcome),
        "score": float(step.score),
        "max_score": float(step.max_score),
        "rules": [_rule(finding) for finding in step.rules],
    }


def _rule(finding: Finding) -> dict[str, Any]:
    """The message is the rule's sentence, and below it what was found, where something was."""
    return {
        "rule": _text(finding.rule),
        "outcome": str(finding.outcome),
        "points": float(finding.points),
        "message": _text("\n".join(part for part in (finding.sentence, finding.message) if part)),
        "story": [_text(line) for line in finding.story],
        "evidence": {_text(str(key)): plain(value) for key, value in finding.evidence.items()},
    }


def plain(value: Any, depth: int = DEEPEST_EVIDENCE) -> Any:
    """Evidence as JSON can hold it; what it cannot hold is told in words."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else _text(hex(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, str):
        return _text(str(value))
    if depth and isinstance(value, Mapping):
        return {_text(str(key)): plain(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(item, depth - 1) for item in value]
    return _text(repr(value))


def _text(text: str) -> str:
    """Half a surrogate pair is no text: it becomes an escape that can be read."""
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", shorten(text, LONGEST_TEXT))
