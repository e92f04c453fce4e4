"""A verdict as Gradescope's `results.json`: a test for each rule, all of it as plain text."""

from __future__ import annotations

import json
from typing import Any

from graders.report import parts
from graders.report.text import story_lines
from graders.verdict import Finding, Outcome, Verdict

STATUS = {Outcome.PASS: "passed", Outcome.ERROR: "passed", Outcome.FAIL: "failed", Outcome.SKIPPED: "failed"}


def render(verdict: Verdict) -> str:
    return json.dumps(as_object(verdict), allow_nan=False)


def as_object(verdict: Verdict) -> dict[str, Any]:
    return {
        "score": float(verdict.score),
        "output": "\n".join(_summary(verdict)),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [_test(finding) for step in verdict.steps for finding in step.rules],
    }


def _summary(verdict: Verdict) -> list[str]:
    lines = [f"{parts.points(verdict.score)} of {parts.points(verdict.max_score)} points."]
    if verdict.broken:
        lines.append("The judge itself failed at some rules: that costs no points, and is not your mistake.")
    if tried := parts.explored(verdict.exploration):
        lines.append(f"Tried: {tried}. {parts.LIMITS}")
    return [*lines, f"The same again: {parts.command(verdict, parts.file_name(verdict))}"]


def _test(finding: Finding) -> dict[str, Any]:
    judge_error = ["THE JUDGE COULD NOT TELL: no points lost"] if finding.outcome is Outcome.ERROR else []
    found = [f"{row.label}: {row.text}" if row.label else row.text for row in parts.rows(finding)]
    return {
        "name": parts.visible(finding.rule),
        "score": float(finding.points),
        "max_score": float(finding.max_points),
        "status": STATUS[finding.outcome],
        "output": "\n".join([*judge_error, parts.visible(finding.sentence), *found, *story_lines(finding)]),
        "output_format": "text",
    }
