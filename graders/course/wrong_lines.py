"""Lines of code that findings point at, put together where they differ in nothing but white space and comments."""

from __future__ import annotations

import io
import tokenize
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from graders.report.parts import shorten

LONGEST_LINE = 200  # characters
MOST_LINES = 8


@dataclass(frozen=True)
class WrongLine:
    """A line as most of those write it who have it, how many they are, and who."""

    text: str
    count: int
    students: tuple[str, ...]


def wrong_lines(places: Iterable[tuple[str, object]]) -> list[WrongLine]:
    """The most frequent lines first. A place is a student and a finding's evidence of where something is wrong."""
    found: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for student, where in places:
        text = where.get("text") if isinstance(where, dict) else None
        if isinstance(text, str) and text.strip():
            words, line = _words(text)
            found.setdefault(words, []).append((student, line))
    lines = [_line(each) for each in found.values()]
    return sorted(lines, key=lambda line: (-line.count, line.text))[:MOST_LINES]


def _line(found: list[tuple[str, str]]) -> WrongLine:
    ((text, _),) = Counter(line for _, line in found).most_common(1)
    return WrongLine(text, len(found), tuple(sorted(student for student, _ in found)))


def _words(text: str) -> tuple[tuple[str, ...], str]:
    """The line as Python's own words, and to look at: both without its comment."""
    line = shorten(text.strip().splitlines()[0], LONGEST_LINE)
    words, end = [], len(line)
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            if token.type == tokenize.COMMENT:
                end = token.start[1]
                break
            words.append(token.string)
    except (tokenize.TokenError, SyntaxError):  # a line by itself need not be whole
        pass
    return tuple(filter(str.strip, words)), " ".join(line[:end].split()) or line
