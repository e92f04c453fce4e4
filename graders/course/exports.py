"""A class's results for other programs: a table, or a file for each student. Nothing is judged, nothing hidden shown.

A student's id may be anything that a folder can be called, or a gradebook can hold: in a table it must not become a
formula, and as the name of a file it must not lead elsewhere.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from graders.course.files import write
from graders.course.results import Result
from graders.engine.rules import Unit
from graders.report import gradescope, junit
from graders.verdict import Outcome, StepVerdict, Verdict

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # how a spreadsheet knows one
LONGEST_NAME = 150  # characters, each of them one byte
A_PERSON = "A person decides about the points of this step."


class CannotExport(Exception):
    """Nothing was written; the message says why in one line."""


def write_csv(results: Sequence[Result], unit: Unit, path: Path) -> int:
    """A row for each student; how many have a grade comes back."""
    write(path, table(results, unit).encode())
    return sum(result.record is not None for result in results)


def write_folder(results: Sequence[Result], form: str, folder: Path) -> int:
    """A file for each student with a verdict, all of them or none, in a new folder; how many comes back."""
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise CannotExport(f"{folder} is there already: name a new folder")
    half_done = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:LONGEST_NAME]}."))
    try:
        files = list(_files(results, form))
        for name, text in files:
            (half_done / name).parent.mkdir(exist_ok=True)
            (half_done / name).write_text(text, encoding="ascii")
        os.rename(half_done, folder)
    except BaseException:
        shutil.rmtree(half_done, ignore_errors=True)
        raise
    return len(files)


def _files(results: Sequence[Result], form: str) -> Iterator[tuple[str, str]]:
    for result in results:
        if result.record is None or result.seen is None:
            continue
        verdict = without_undecided(result, result.seen)
        name = file_name(result.student)
        if form == "gradescope":
            yield f"{name}/results.json", gradescope.render(verdict)
        else:
            yield f"{name}.xml", junit.render(verdict)


def without_undecided(result: Result, verdict: Verdict) -> Verdict:
    """The verdict with no points for what waits for a person."""
    waiting = {mark.step for mark in result.marks if mark.is_undecided}
    return replace(verdict, steps=tuple(_step(step, step.step in waiting) for step in verdict.steps))


def _step(step: StepVerdict, waits: bool) -> StepVerdict:
    rules = [
        replace(rule, outcome=Outcome.SKIPPED, message=A_PERSON, story=(), evidence={})
        if waits or rule.outcome is Outcome.ERROR
        else rule
        for rule in step.rules
    ]
    return replace(step, rules=tuple(rules))


def table(results: Sequence[Result], unit: Unit) -> str:
    """Comma-separated values: text in quotes, numbers without."""
    steps = [step.name for step in unit.steps]
    words = sorted({(mark.notebook, mark.cell) for each in results for mark in each.marks if not mark.is_judged})
    cells = [*steps, *(cell for _, cell in words)]
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    ends = ["total", "max", "late_penalty", "score", "waits_for_person", "timestamp"]
    writer.writerow([_harmless(name) for name in ["student", *cells, *ends]])
    for result in results:
        writer.writerow([_harmless(result.student), *_values(result, cells)])
    return text.getvalue()


def _values(result: Result, cells: Sequence[str]) -> list[str | float]:
    """A student's row; nothing in it where there is no grade. `score` is the total without what being late costs."""
    if result.record is None:
        return [""] * (len(cells) + 6)
    marks = {mark.cell: mark for mark in result.marks}
    total, most, penalty = result.points, result.most, result.record.penalty
    waits = " ".join(mark.cell for mark in result.marks if mark.waits)
    when = result.record.handed_in
    points = [marks[cell].points if cell in marks else "" for cell in cells]
    end = when.isoformat(timespec="seconds") if when else ""
    return [*points, total, most, penalty, result.score, _harmless(waits), end]


def _harmless(text: str) -> str:
    """Text that no spreadsheet takes for a formula, and that can be written as UTF-8."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return f"'{text}" if text.startswith(FORMULA) else text


def file_name(student: str) -> str:
    """The id where it is a harmless name; else with escapes, and cut where it is too long. No two ids share a name."""
    name = quote(os.fsencode(student), safe="@+=, ").replace("~", "%7E")
    if name.startswith((".", " ", "-")):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) <= LONGEST_NAME:
        return name or "%"
    return f"{name[: LONGEST_NAME - 41]}~{hashlib.sha256(os.fsencode(student)).hexdigest()[:40]}"
