"""Writing one step's section into a learner's file, and nothing else in it.

The judge's own reader (`graders.engine.sections`) says which line belongs to which step; here the same lines are kept
as they are, line ends included, so that whatever is not the section comes out byte for byte as it went in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from graders.engine.sections import split

TEXT_CELL = None
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
SOLUTION_MARK = re.compile(r"\s*#+\s*(BEGIN|END) SOLUTION\b")
MAGIC = re.compile(r"%%step[ \t]+(?P<step>\w+)[ \t]*(\n|$)")  # how a solution cell begins
STUB = re.compile(r"\s*raise NotImplementedError\b")


@dataclass(frozen=True)
class Chunk:
    """Neighbouring lines with one owner: a step, the preamble (the empty name), or nobody (`TEXT_CELL`)."""

    owner: str | None
    lines: Sequence[str]


def chunks(source: str, steps: Sequence[str]) -> list[Chunk]:
    """`source` cut where its lines change owner; the lines of all chunks together are `source` again."""
    owner: dict[int, str] = {}
    for name, lines in split(source, steps, "").sections.items():
        owner.update({line.number: name for line in lines if line.number is not None})
    numbered = enumerate(LINE.findall(source), start=1)
    runs = groupby(numbered, key=lambda item: owner.get(item[0], TEXT_CELL))
    return [Chunk(name, [text for _, text in run]) for name, run in runs]


def cell_body(cell: str) -> str:
    """A solution cell's code without its magic line, nbgrader's solution marks, and blank lines around it."""
    lines = cell.split("\n")
    if lines and lines[0].startswith("%%step"):
        del lines[0]
    return "\n".join(line for line in lines if not SOLUTION_MARK.match(line)).strip("\n").rstrip()


def is_starter(body: str) -> bool:
    """Something in it is still to be written."""
    return any(STUB.match(line) for line in body.split("\n"))


def foreign_marker(body: str, step: str, steps: Sequence[str]) -> tuple[int, str] | None:
    """Number and text of the first line of `body` that would start another cell of the file than this step's."""
    own, *others = chunks(f"# %% {step}\n{body}\n", steps)
    return (len(own.lines), others[0].lines[0].strip()) if others else None


def section_text(source: str, step: str, steps: Sequence[str]) -> str | None:
    """The step's code in `source` without its first marker, in LF and without blank ends; None where there is none."""
    lines = [line for chunk in chunks(source, steps) if chunk.owner == step for line in chunk.lines]
    if not lines:
        return None
    return "\n".join(line.rstrip("\r\n") for line in lines[1:]).strip("\n").rstrip()


def place(source: str, step: str, body: str, steps: Sequence[str]) -> str:
    """`source` with `body` as the section of `step`: where that section was, or else in the contract's order."""
    line_end = "\r\n" if "\r\n" in source else "\n"
    section = [line + line_end for line in (f"# %% {step}", *body.split("\n"))]
    cells = chunks(source, steps)
    own = [index for index, cell in enumerate(cells) if cell.owner == step]
    at = own[0] if own else _new_place(cells, step, steps)
    before = [line for cell in cells[:at] for line in cell.lines]
    after = [line for cell in cells[at:] if cell.owner != step for line in cell.lines]
    opening = [] if own or not before else _gap_after(before, line_end)
    closing = [line_end] * _missing_blank_lines(after) if after else []
    return "".join([*before, *opening, *section, *closing, *after])


def _gap_after(before: Sequence[str], line_end: str) -> list[str]:
    """What parts a new section from the lines before it."""
    unfinished = not before[-1].endswith(("\n", "\r"))
    return [line_end] * (unfinished + _missing_blank_lines(before[::-1]))


def _new_place(cells: Sequence[Chunk], step: str, steps: Sequence[str]) -> int:
    """Behind the nearest earlier step that is there, or else behind the preamble."""
    for earlier in (*reversed(steps[: steps.index(step)]), ""):
        there = [index for index, cell in enumerate(cells) if cell.owner == earlier]
        if there:
            return there[-1] + 1
    return 0


def _missing_blank_lines(lines: Sequence[str]) -> int:
    """How many of the two blank lines between cells the first of these lines are not."""
    blank = next((index for index, line in enumerate(lines) if line.strip()), len(lines))
    return max(0, 2 - blank)


def up_to(source: str, step: str, steps: Sequence[str]) -> str:
    """The program of the steps up to `step`: every other line is blank, so that line numbers stay the file's own."""
    wanted = {"", *steps[: steps.index(step) + 1]}
    kept = [
        text.rstrip("\r\n") if chunk.owner in wanted else "" for chunk in chunks(source, steps) for text in chunk.lines
    ]
    return "\n".join(kept) + "\n"


def owner_of(source: str, number: int, steps: Sequence[str]) -> str:
    """The step that line `number` belongs to, "" for the preamble, a text cell and a line that is not there."""
    last = 0
    for chunk in chunks(source, steps):
        last += len(chunk.lines)
        if 0 < number <= last:
            return chunk.owner or ""
    return ""
