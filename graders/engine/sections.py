"""A learner's file as a sequence of percent cells, and the program that one step is judged on.

A percent script marks its cells with comment lines: `# %% store` starts the code cell of the step `store`, and
`# %% [markdown]` starts text. What stands before the first marker is the preamble, which goes with every step.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

MARKER = re.compile(r"#\s*%%+\s*(?P<title>[^\r\n]*)")
PREAMBLE = ""

# What Python raises for text that is no program: odd bytes (SystemError: a NUL on 3.13) and absurd nesting included.
NOT_PYTHON = (SyntaxError, ValueError, SystemError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Line:
    """One line of a program: its text without line end, and where it stands in the learner's file (None: not
    theirs).
    """

    text: str
    number: int | None


@dataclass(frozen=True)
class LearnerFile:
    """A file cut into its sections: step name to lines, the preamble under the empty name."""

    name: str
    sections: Mapping[str, Sequence[Line]]

    def has(self, step: str) -> bool:
        return step in self.sections

    def text(self, step: str) -> str:
        return "\n".join(line.text for line in self.sections.get(step, ()))


def split(source: str, steps: Collection[str], name: str) -> LearnerFile:
    """Cut `source` at its markers. A cell without a step's name belongs to the step before it; text cells are
    dropped.
    """
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    markers = _marker_lines(lines)
    sections: dict[str, list[Line]] = {PREAMBLE: []}
    current, is_text = PREAMBLE, False
    for number, text in enumerate(lines, start=1):
        if number in markers:
            title = markers[number]
            is_text = title.startswith("[markdown]") or title.startswith("[md]")
            word = title.split()[0] if title.split() else ""
            if word in steps:
                current = word
                sections.setdefault(current, [])
        if not is_text:
            sections[current].append(Line(text, number))
    return LearnerFile(name, sections)


def _marker_lines(lines: Sequence[str]) -> dict[int, str]:
    """Line number to title of every marker; one inside a string literal is not a marker."""
    found = {
        number: match["title"].strip() for number, line in enumerate(lines, start=1) if (match := MARKER.match(line))
    }
    if not found:
        return found
    try:
        comments = {
            token.start[0]
            for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline)
            if token.type == tokenize.COMMENT and token.start[1] == 0
        }
    except (tokenize.TokenError, *NOT_PYTHON):
        return found  # a file that Python cannot read either: the line is all there is to go by
    return {number: title for number, title in found.items() if number in comments}


def join(parts: Iterable[Sequence[Line]]) -> list[Line]:
    """The lines of several sections, one after the other."""
    return [line for part in parts for line in part]
