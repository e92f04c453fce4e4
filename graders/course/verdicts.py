"""Verdicts that were given before, kept by what they are about: the same file and seed are not judged twice.

A verdict is a file named by a hash of the unit, the judge's version, the seed and the submission's digest. What is
damaged, or from a judge with other rules, counts as not there.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graders.course.files import Refused, read_plain, write
from graders.engine.rules import Unit
from graders.report.as_json import plain
from graders.verdict import JUDGE_VERSION, Exploration, Finding, Outcome, StepVerdict, Verdict

NAME = ".verdicts"
LONGEST = 50_000_000  # bytes of one verdict


class VerdictStore:
    """A folder of verdicts. It also holds what hidden inputs have shown: nobody but its owner may read it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, unit: Unit, seed: int, digest: str) -> Verdict | None:
        """The verdict on a submission with this digest, or None."""
        try:
            data = json.loads(read_plain(str(self._path(unit, seed, digest)), LONGEST))
            verdict = _verdict(data)
        except (OSError, Refused, ValueError, KeyError, TypeError, RecursionError):
            return None
        sure = (verdict.unit, verdict.seed, verdict.judge) == (unit.name, seed, JUDGE_VERSION)
        return verdict if sure and _rules(verdict) == _rules_of(unit) else None

    def keep(self, unit: Unit, digest: str, verdict: Verdict) -> None:
        """Keep a verdict; one in which the judge itself broke is not worth keeping."""
        if verdict.broken:
            return
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        write(self._path(unit, verdict.seed, digest), json.dumps(plain(asdict(verdict))).encode())

    def _path(self, unit: Unit, seed: int, digest: str) -> Path:
        key = "\0".join((unit.name, JUDGE_VERSION, str(seed), digest))
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def from_text(text: str) -> Verdict:
    """A verdict that a worker has sent as JSON. Raises where it is none."""
    return _verdict(json.loads(text))


def _verdict(data: Any) -> Verdict:
    steps = tuple(
        StepVerdict(_text(step["step"]), _text(step["title"]), tuple(_finding(rule) for rule in step["rules"]))
        for step in data["steps"]
    )
    counts = data["exploration"]
    exploration = Exploration(
        int(counts["points"]), int(counts["states"]), int(counts["kills"]), float(counts["seconds"])
    )
    return Verdict(_text(data["unit"]), data["seed"], steps, exploration, _text(data["judge"]))


def _finding(data: Any) -> Finding:
    return Finding(
        _text(data["rule"]),
        _text(data["sentence"]),
        Outcome(data["outcome"]),
        float(data["max_points"]),
        _text(data["message"]),
        tuple(map(_text, data["story"])),
        dict(data["evidence"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _rules(verdict: Verdict) -> list[tuple[str, str, float]]:
    return [(step.step, rule.rule, rule.max_points) for step in verdict.steps for rule in step.rules]


def _rules_of(unit: Unit) -> list[tuple[str, str, float]]:
    """What a whole verdict on the unit is made of today."""
    found = []
    for step in unit.steps:
        found.append((step.name, f"{step.name}/defines", 0.0))
        found += [(step.name, rule.id, float(rule.points)) for rule in step.rules]
    return found
