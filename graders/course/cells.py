"""The cells of a notebook that nobody vouches for, and which of them are the text of a step.

A notebook is read from any JSON value. Where something is not what it should be, it counts as not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graders.course.files import Refused
from graders.engine.section_writer import MAGIC, cell_body, is_starter

LARGEST = 100_000_000  # bytes of one notebook, outputs included
MOST_PARTS = 2_000_000  # lists and objects in it: empty ones cost thirty times their length in memory
MOST_CELLS = 2000
BLANK_START = re.compile(r"\A(?:[ \t]*\n)+")
KINDS = ("code", "markdown", "raw")


@dataclass(frozen=True)
class Cell:
    """What is used of a student's cell. `grade_id` is nbgrader's name for it, `identity` the notebook's own."""

    kind: str
    source: str
    identity: str = ""
    grade_id: str = ""
    mark: object = None  # nbgrader's metadata as they are, to tell whether somebody changed them
    attachments: object = None

    @property
    def step(self) -> str:
        """The step whose magic starts the cell, or ""."""
        match = MAGIC.match(self.source)
        return match["step"] if match else ""


@dataclass(frozen=True)
class Written:
    """The text of one step, from one cell or from neighbours that were one before somebody split it."""

    step: str
    body: str
    source: str
    at: Sequence[int]


def parse(data: bytes) -> object:
    """A notebook's JSON without its outputs. Raises Refused with a reason that a student can do something about."""
    if not data.strip():
        raise Refused("is empty")
    if data.count(b"[") + data.count(b"{") > MOST_PARTS:
        raise Refused("has more lists and objects in it than any notebook")
    try:
        notebook = json.loads(data)
    except RecursionError:
        raise Refused("is nested more deeply than any notebook") from None
    except ValueError:
        raise Refused("is not valid JSON, so that no program can open it as a notebook") from None
    for number, cell in enumerate(_raw_cells(notebook), start=1):
        if number > MOST_CELLS:
            raise Refused(f"has more than {MOST_CELLS} cells")
        cell.pop("outputs", None)
    return notebook


def cells_of(notebook: object) -> list[Cell] | None:
    """The cells in order; None for what is no notebook."""
    if not isinstance(notebook, dict) or not any(
        isinstance(notebook.get(key), list) for key in ("cells", "worksheets")
    ):
        return None
    return [_cell(cell) for cell in _raw_cells(notebook)]


def _raw_cells(notebook: object) -> Iterator[dict[str, Any]]:
    """Every cell, also those of a notebook from before version 4, which has them in worksheets."""
    if not isinstance(notebook, dict):
        return
    for holder in (notebook, *_list(notebook.get("worksheets"))):
        if isinstance(holder, dict):
            yield from (cell for cell in _list(holder.get("cells")) if isinstance(cell, dict))


def _cell(cell: Mapping[str, Any]) -> Cell:
    metadata = cell.get("metadata")
    mark = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    kind = cell.get("cell_type")
    return Cell(
        kind=kind if kind in KINDS else "markdown",
        source=BLANK_START.sub("", _text(cell.get("source", cell.get("input")))),
        identity=_text(cell.get("id")),
        grade_id=_text(mark.get("grade_id")) if isinstance(mark, dict) else "",
        mark=mark,
        attachments=cell.get("attachments"),
    )


def _text(value: object) -> str:
    """Text as notebooks keep it, in one string or in lines; half a surrogate pair is no text."""
    text = value if isinstance(value, str) else "".join(line for line in _list(value) if isinstance(line, str))
    return text.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def written(cells: Sequence[Cell], steps: Collection[str]) -> list[Written]:
    """Every text for a step, in the order of the notebook."""
    found = [_with_split_off(cells, index) for index, cell in enumerate(cells) if cell.step in steps]
    there = {text.step for text in found}
    return found + [text for step in steps if step not in there for text in _without_magic(cells, step)]


def _with_split_off(cells: Sequence[Cell], first: int) -> Written:
    """The cell with the magic, and those directly behind it which were split off: they carry the same grade id."""
    step = cells[first].step
    names = {cells[first].grade_id, solution_id(step)} - {""}
    end = first + 1
    while end < len(cells) and cells[end].grade_id in names and not cells[end].step:
        end += 1
    bodies = [cell_body(cell.source) for cell in cells[first:end]]
    source = "\n\n".join(cell.source.rstrip() for cell in cells[first:end]) if end > first + 1 else cells[first].source
    return Written(step, "\n\n".join(bodies), source, range(first, end))


def _without_magic(cells: Sequence[Cell], step: str) -> list[Written]:
    """A solution cell whose first line got lost is known by its grade id."""
    return [
        Written(step, cell_body(cell.source), cell.source, [index])
        for index, cell in enumerate(cells)
        if cell.grade_id == solution_id(step) and not cell.step
    ]


def solution_id(step: str) -> str:
    """What the course's notebooks call the cell that a step is written in."""
    return f"{step}-solution"


def chosen(texts: Sequence[Written], step: str) -> Written | None:
    """The text that counts for a step: the last one that somebody wrote, or else the last one."""
    own = [text for text in texts if text.step == step]
    done = [text for text in own if text.body.strip() and not is_starter(text.body)]
    return (done or own)[-1] if own else None
