"""A page about a whole class: who has which points, which rules break most often, and at which lines.

`anonymous` leaves out names, and what could stand for one: students are numbered in an order that only the course's
secret gives, and a student's id inside a line of code is left out, too.
"""

from __future__ import annotations

import hmac
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import jinja2

from graders.course import history, secret, trend
from graders.course.batch import RECORDS
from graders.course.gradebook import Mark
from graders.course.results import Result, of_class
from graders.course.wrong_lines import WrongLine, wrong_lines
from graders.engine.rules import Unit
from graders.report import html
from graders.report.parts import points
from graders.verdict import Outcome

MOST_RULES = 20
MOST_NAMES = 12  # of those who have the same line
LEFT_OUT = "‹name›"


@dataclass(frozen=True)
class Kind:
    """What a cell of the heat map shows besides its numbers: a mark, and what it means in words."""

    name: str
    mark: str
    words: str


KINDS = (
    Kind("full", "✓", "all points"),
    Kind("most", "◕", "half of the points or more"),
    Kind("some", "◔", "less than half of the points"),
    Kind("none", "✗", "no points"),
    Kind("waits", "!", "waits for a person"),
    Kind("absent", "–", "not handed in"),
    Kind("ungraded", "?", "not graded yet"),
)
FULL, MOST, SOME, NONE, WAITS, ABSENT, UNGRADED = KINDS


@dataclass(frozen=True)
class Cell:
    """One student's step: the judge's points, and below them those for the answers in words."""

    kind: Kind
    text: str
    words: str = ""


@dataclass(frozen=True)
class Row:
    name: str
    cells: tuple[Cell, ...]
    total: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Difficulty:
    """The judge's points for one step, among those whose points are certain."""

    step: str
    most: float
    students: int
    full: int = 0
    mean: float = 0.0
    quartiles: tuple[float, ...] = (0.0, 0.0, 0.0)

    @property
    def share(self) -> int:
        return _percent(self.mean, self.most)


@dataclass(frozen=True)
class BrokenRule:
    rule: str
    sentence: str
    students: int
    of: int
    lines: Sequence[WrongLine]

    @property
    def share(self) -> int:
        return _percent(self.students, self.of)


def page(course: Path, unit: Unit, *, anonymous: bool = False) -> str:
    """The whole page. Raises NoCourse, NoSecret, or NobodyGraded."""
    results = of_class(course, unit)
    names = [name for result in results for name in (result.student, result.name) if name]
    if anonymous:
        results = _without_names(results, secret.read(course), unit.name)
    days = trend.by_day(history.read(course / RECORDS / unit.name).values())
    most = round(sum(step.max_score for step in unit.steps), 6)
    rules = broken_rules(results, names if anonymous else [])
    return _template().render(
        unit=unit.name,
        steps=[step.name for step in unit.steps],
        rows=[_row(result, unit) for result in sorted(results, key=_order)],
        kinds=KINDS,
        difficulties=[_difficulty(results, step.name, step.max_score) for step in unit.steps],
        rules=rules[:MOST_RULES],
        most_names=MOST_NAMES,
        more_rules=len(rules[MOST_RULES:]),
        judged=sum(result.verdict is not None for result in results),
        anonymous=anonymous,
        days=days,
        most=most,
        picture=trend.draw(days, most) if days else "",
        short=trend.last_digit,
    )


def _without_names(results: Sequence[Result], key: bytes, unit: str) -> list[Result]:
    """The same class as student 1, student 2 …"""
    numbered = enumerate(shuffled(results, key, unit), start=1)
    return [replace(each, student=f"student {number}", name="") for number, each in numbered]


def shuffled(results: Sequence[Result], key: bytes, unit: str) -> list[Result]:
    """In an order that is always the same, and that nobody knows who does not have the key."""

    def place(result: Result) -> bytes:
        return hmac.digest(key, f"order\0{unit}\0{result.student}".encode("utf-8", "surrogateescape"), "sha256")

    return sorted(results, key=place)


def _order(result: Result) -> tuple[list[tuple[int, str]], str]:
    """By name; `student 2` comes before `student 10`."""
    parts = re.split(r"(\d{1,18})", (result.name or result.student).casefold())
    return [(int(part) if part.isdecimal() else -1, part) for part in parts], result.student


def _row(result: Result, unit: Unit) -> Row:
    notes = [f"{result.record.penalty:g} points less for being late"] if result.record and result.record.penalty else []
    if result.record and result.trouble:
        notes.append(result.trouble)
    name = f"{result.name} ({result.student})" if result.name else result.student
    return Row(name, tuple(_cell(result, step.name) for step in unit.steps), _total(result), tuple(notes))


def _total(result: Result) -> str:
    if result.record is None:
        return ""
    return f"{points(result.score)} of {points(result.most)}"


def _cell(result: Result, step: str) -> Cell:
    mark = result.step(step)
    if not result.handed_in and mark is None:
        return Cell(ABSENT, ABSENT.words)
    if mark is None:
        return Cell(UNGRADED, UNGRADED.words)
    if step in result.missing:
        return Cell(ABSENT, f"{ABSENT.words}, {mark.points:g} of {mark.most:g}")
    words = _words([each for each in result.marks if each.step == step and not each.is_judged])
    if mark.waits:
        return Cell(WAITS, f"{WAITS.words}, {mark.points:g} of {mark.most:g} so far", words)
    return Cell(_kind(mark), f"{mark.points:g} of {mark.most:g}", words)


def _kind(mark: Mark) -> Kind:
    if mark.points >= mark.most:
        return FULL
    if mark.points <= 0:
        return NONE
    return MOST if mark.points >= mark.most / 2 else SOME


def _words(marks: Sequence[Mark]) -> str:
    """What is said of a step's answers in words."""
    if not marks:
        return ""
    if waiting := sum(mark.waits for mark in marks):
        return f"{WAITS.mark} {waiting} in words {'waits' if waiting == 1 else 'wait'}"
    return f"in words {points(sum(mark.points for mark in marks))} of {points(sum(mark.most for mark in marks))}"


def _difficulty(results: Sequence[Result], step: str, most: float) -> Difficulty:
    marks = [result.step(step) for result in results if step not in result.missing]
    certain = [mark.points for mark in marks if mark is not None and not mark.waits]
    if not certain:
        return Difficulty(step, most, 0)
    quartiles = statistics.quantiles(certain, n=4, method="inclusive") if len(certain) > 1 else certain * 3
    full = sum(given >= most for given in certain)
    return Difficulty(step, most, len(certain), full, statistics.fmean(certain), tuple(quartiles))


def broken_rules(results: Sequence[Result], names: Sequence[str] = ()) -> list[BrokenRule]:
    """The rules that break, most often first. `names` are left out of the lines."""
    judged = [result for result in results if result.verdict is not None]
    broken: Counter[str] = Counter()
    sentences: dict[str, str] = {}
    places: dict[str, list[tuple[str, object]]] = {}
    for result in judged:
        assert result.verdict is not None
        for step in result.verdict.steps:
            for finding in step.rules:
                if finding.outcome is Outcome.FAIL:
                    broken[finding.rule] += 1
                    sentences[finding.rule] = finding.sentence
                    places.setdefault(finding.rule, []).append((result.student, finding.evidence.get("where")))
    return [
        BrokenRule(rule, sentences[rule], students, len(judged), _nameless(wrong_lines(places[rule]), names))
        for rule, students in broken.most_common()
    ]


def _nameless(lines: Sequence[WrongLine], names: Sequence[str]) -> list[WrongLine]:
    if not names:
        return list(lines)
    longest_first = sorted(names, key=len, reverse=True)
    any_of_them = "|".join(map(re.escape, longest_first))
    any_name = re.compile(rf"(?<![^\W_])(?:{any_of_them})(?![^\W_])", re.IGNORECASE)
    return [replace(line, text=any_name.sub(LEFT_OUT, line.text), students=()) for line in lines]


def _percent(part: float, whole: float) -> int:
    return round(100 * part / whole) if whole else 0


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    own = html.environment().overlay(loader=jinja2.FileSystemLoader(Path(__file__).parent))
    return own.get_template("class_report.html.j2")
