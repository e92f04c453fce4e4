"""A student's notebook as nbgrader has to see it: every cell that is graded, locked or a solution, as it was released.

nbgrader keeps its marks in the notebook itself, where a copied cell, a merge tool or a curious student changes them; a
single one that is wrong stops the grading of that student, or of the whole class. So the marks are taken from the
release, and from the student only the text. Nothing is kept that could run in a page: outputs, raw cells, attachments
other than pictures, HTML. Repairing what was repaired changes nothing.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graders.course.cells import Cell, cells_of, chosen, written
from graders.course.markdown import harmless

IDENTITY = re.compile(r"[A-Za-z0-9_-]{1,64}")
PICTURES = ("image/png", "image/jpeg", "image/gif")
LARGEST_PICTURE = 5_000_000  # characters of base64
LONGEST_CODE = 200_000  # characters of one cell; colouring it takes the feedback page a second
BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")
FILE_NAME = re.compile(r"[\w. ()-]{1,200}")


@dataclass(frozen=True)
class Repaired:
    """A whole notebook, valid in format 4.5, and what had to be done to it, in lines for the instructor."""

    notebook: dict[str, Any]
    notes: tuple[str, ...]


def repair(student: object, released: Mapping[str, Any]) -> Repaired:
    """The student's notebook with the released cells in it. What is no notebook at all becomes the release itself."""
    cells = cells_of(student)
    if cells is None:
        cells = cells_of(released) or []
        return Repaired(
            _notebook(_Repair(cells, released).cells(), released),
            ("the released notebook stands in for what was handed in",),
        )
    work = _Repair(cells, released)
    return Repaired(_notebook(work.cells(), released), tuple(work.notes))


def _notebook(cells: list[dict[str, Any]], released: Mapping[str, Any]) -> dict[str, Any]:
    return {"cells": cells, "metadata": copy.deepcopy(released["metadata"]), "nbformat": 4, "nbformat_minor": 5}


@dataclass(frozen=True)
class _Marked:
    """A released cell that nbgrader knows."""

    number: int
    raw: Mapping[str, Any]
    cell: Cell

    def __str__(self) -> str:
        return f"the cell {self.cell.grade_id}"

    @property
    def locked(self) -> bool:
        return bool(self.raw["metadata"]["nbgrader"].get("locked"))


@dataclass
class _Repair:
    student: Sequence[Cell]
    released: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)

    def cells(self) -> list[dict[str, Any]]:
        """All cells in the student's order; one that is missing comes behind the one that it followed."""
        self.taken: dict[int, _Marked] = {}
        self.text: dict[str, str] = {}
        self.joined: set[int] = set()
        self.marked = self.find_marked()
        # A cell that starts with a step's magic is that step's, whatever marks it carries: those are found first.
        in_order = sorted(self.marked, key=lambda marked: not marked.cell.step)
        missing = sorted((marked for marked in in_order if not self.find(marked)), key=lambda marked: marked.number)
        identities = _Identities(str(marked.raw["id"]) for marked in self.marked)
        made = [
            (self.taken.get(index), self.made(index, cell, identities))
            for index, cell in enumerate(self.student)
            if index not in self.joined
        ]
        for marked in missing:
            self.notes.append(f"{marked} was not there and was put back")
            made.insert(_place_of(marked, made), (marked, self.marked_cell(marked, marked.cell)))
        return [cell for _, cell in made]

    def find_marked(self) -> list[_Marked]:
        cells = cells_of(self.released) or []
        pairs = enumerate(zip(self.released["cells"], cells, strict=True))
        # A release from before format 4.5 has no ids of its own.
        return [_Marked(number, {"id": cell.grade_id} | raw, cell) for number, (raw, cell) in pairs if cell.grade_id]

    def find(self, marked: _Marked) -> bool:
        """Find the student's cell that is this released one; the first way in which any is found decides."""
        if marked.cell.step:
            texts = written(self.student, [marked.cell.step])
            text = chosen(texts, marked.cell.step)
            if text is not None:
                self.text[marked.cell.grade_id] = text.source
                return self.take(marked, list(text.at), len(texts))
        used = self.joined.union(self.taken)
        free = [(index, cell) for index, cell in enumerate(self.student) if index not in used]
        same_mark = [index for index, cell in free if cell.grade_id == marked.cell.grade_id]
        same_name = [index for index, cell in free if cell.identity == marked.raw["id"] and not self.known(cell)]
        same_text = [index for index, cell in free if cell.source == marked.cell.source and not self.known(cell)]
        for found in (same_mark, same_name, same_text):
            if found:
                changed = [index for index in found if self.student[index].source != marked.cell.source]
                last = found[-1] if marked.locked else (changed or found)[-1]
                return self.take(marked, [last], len(found))
        return False

    def known(self, cell: Cell) -> bool:
        """It carries the grade id of a released cell, perhaps of another one."""
        return any(cell.grade_id == marked.cell.grade_id for marked in self.marked)

    def take(self, marked: _Marked, at: list[int], found: int) -> bool:
        self.taken[at[0]] = marked
        self.joined.update(at[1:])
        if found > 1:
            self.notes.append(f"{marked} was there {found} times; one of them counts")
        if len(at) > 1:
            self.notes.append(f"{marked} was split in {len(at)} cells, which are joined again")
        return True

    def made(self, index: int, cell: Cell, identities: _Identities) -> dict[str, Any]:
        marked = self.taken.get(index)
        if marked is not None:
            self.compare(marked, cell)
            return self.marked_cell(marked, cell)
        as_released = cell.source in self.released_text and cell.kind == "markdown"
        return _own_cell(cell, identities.next(cell.identity), as_released)

    @property
    def released_text(self) -> set[str]:
        return {_joined(raw["source"]) for raw in self.released["cells"]}

    def compare(self, marked: _Marked, cell: Cell) -> None:
        """Note what is not as it was released."""
        if cell.kind != marked.cell.kind:
            self.notes.append(f"{marked} had become a {cell.kind} cell and is a {marked.cell.kind} cell again")
        if marked.locked and cell.source != marked.cell.source:
            self.notes.append(f"{marked} was changed and is as it was released again")
        if cell.mark != marked.cell.mark:
            self.notes.append(f"{marked} had lost or changed nbgrader's marks, which are those of the release again")

    def marked_cell(self, marked: _Marked, cell: Cell) -> dict[str, Any]:
        """The released cell, with the student's text where it is theirs to write."""
        made = copy.deepcopy(dict(marked.raw))
        text = marked.cell.source if marked.locked else self.text.get(marked.cell.grade_id, cell.source)
        if marked.cell.kind == "code":
            return made | {"source": _cut(text), "outputs": [], "execution_count": None}
        if text == marked.cell.source:
            return made | {"source": text}
        return made | _harmless(text, cell)


def _place_of(marked: _Marked, made: Sequence[tuple[_Marked | None, object]]) -> int:
    """Behind the nearest earlier released cell that is there, or else at the start."""
    earlier = [(there.number, index) for index, (there, _) in enumerate(made) if there and there.number < marked.number]
    return max(earlier)[1] + 1 if earlier else 0


def _own_cell(cell: Cell, identity: str, as_released: bool) -> dict[str, Any]:
    """One of the student's own cells, or of the teaching text. A raw cell would go into the page as it is."""
    if cell.kind == "markdown":
        text = {"source": cell.source} if as_released else _harmless(cell.source, cell)
        return {"cell_type": "markdown", "id": identity, "metadata": {}, **text}
    code = {"cell_type": "code", "id": identity, "metadata": {}, "source": _cut(cell.source)}
    return code | {"outputs": [], "execution_count": None}


def _cut(source: str) -> str:
    """Code as a page can show it. What is judged is read from the submission itself."""
    if len(source) <= LONGEST_CODE:
        return source
    return f"{source[: LONGEST_CODE - 100]}\n# … cut here: there were {len(source)} characters"


def _harmless(text: str, cell: Cell) -> dict[str, Any]:
    """A text cell's source, and its pictures where it has any."""
    pictures = _pictures(cell.attachments)
    return {"source": harmless(text, pictures), **({"attachments": pictures} if pictures else {})}


def _pictures(attachments: object) -> dict[str, dict[str, str]]:
    """The attachments that are nothing but pictures."""
    if not isinstance(attachments, dict):
        return {}
    found = {}
    for name, bundle in attachments.items():
        kept = {kind: bundle[kind] for kind in PICTURES if isinstance(bundle, dict) and _is_base64(bundle.get(kind))}
        if kept and FILE_NAME.fullmatch(name):
            found[name] = kept
    return found


def _is_base64(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LARGEST_PICTURE and BASE64.fullmatch(value) is not None


def _joined(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


class _Identities:
    """Gives each cell a name of its own: the one it has, where that is a name at all and still free."""

    def __init__(self, used: Iterator[str]) -> None:
        self.used = set(used)

    def next(self, wish: str) -> str:
        name, number = wish, 0
        while name in self.used or not IDENTITY.fullmatch(name):
            number += 1
            name = f"cell-{len(self.used)}-{number}"
        self.used.add(name)
        return name
