"""Repairing one notebook: the release's cells come back, the student's text stays, whatever was done to it."""

from __future__ import annotations

import copy
import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbgrader.nbgraderformat import MetadataValidator

from graders.course.markdown import JOINER, fenced, harmless
from graders.course.repair import Repaired, repair

ROOT = Path(__file__).resolve().parents[2]
RELEASED = json.loads((ROOT / "notebooks" / "receiver" / "02_store.ipynb").read_text())
CODE = "%%step store\ndef open_store(path):\n    return 1\n"
Cells = list[dict[str, Any]]


def student() -> dict[str, Any]:
    """A notebook with an answer in code and one in words."""
    notebook = copy.deepcopy(RELEASED)
    cell(notebook["cells"], "store-solution")["source"] = CODE
    cell(notebook["cells"], "store-why")["source"] = "Because."
    return notebook


def cell(cells: Cells, identity: str) -> dict[str, Any]:
    return next(cell for cell in cells if cell["id"] == identity)


def after(change: Callable[[Cells], None]) -> Repaired:
    notebook = student()
    change(notebook["cells"])
    return checked(repair(notebook, RELEASED))


def checked(repaired: Repaired) -> Repaired:
    """What must be so of every repaired notebook."""
    node = nbformat.from_dict(repaired.notebook)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nbformat.validate(node)
    MetadataValidator().validate_nb(node)
    for released in marked(RELEASED):
        (found,) = [each for each in marked(repaired.notebook) if grade_id(each) == grade_id(released)]
        assert (found["metadata"], found["cell_type"]) == (released["metadata"], released["cell_type"])
        if released["metadata"]["nbgrader"]["locked"]:
            assert found["source"] == text(released)
    assert len(marked(repaired.notebook)) == len(marked(RELEASED))
    assert not any(each.get("outputs") or each["cell_type"] == "raw" for each in repaired.notebook["cells"])
    again = repair(repaired.notebook, RELEASED)
    assert again.notebook == repaired.notebook and set(again.notes) <= set(repaired.notes)
    return repaired


def marked(notebook: dict[str, Any]) -> Cells:
    return [each for each in notebook["cells"] if "nbgrader" in each["metadata"]]


def grade_id(each: dict[str, Any]) -> str:
    return str(each["metadata"]["nbgrader"]["grade_id"])


def text(each: dict[str, Any]) -> str:
    return "".join(each["source"])


def answers(repaired: Repaired) -> tuple[str, str]:
    found = {grade_id(each): text(each) for each in marked(repaired.notebook)}
    return found["store-solution"], found["store-why"]


def nothing(cells: Cells) -> None:
    pass


def copied(cells: Cells) -> None:
    for identity in ("store-solution", "store-why", "store-test"):
        index = cells.index(cell(cells, identity))
        cells.insert(index, copy.deepcopy(cells[index]))
    cell(cells, "store-solution")["source"] = "%%step store\nearlier = 1"
    cell(cells, "store-why")["source"] = "Earlier."


def copied_as_starter(cells: Cells) -> None:
    for identity in ("store-solution", "store-why"):
        cells.append(copy.deepcopy(cell(RELEASED["cells"], identity)))


def deleted(cells: Cells) -> None:
    for identity in ("store-test", "store-load", "store-contract", "store-why-question"):
        cells.remove(cell(cells, identity))


def retyped(cells: Cells) -> None:
    for identity, kind in (("store-solution", "raw"), ("store-test", "markdown"), ("store-why", "code")):
        cell(cells, identity)["cell_type"] = kind


def reordered(cells: Cells) -> None:
    random.Random(1).shuffle(cells)


def flipped(cells: Cells) -> None:
    for each in cells:
        if mark := each["metadata"].get("nbgrader"):
            mark |= {"locked": not mark["locked"], "grade": not mark["grade"], "points": -5, "schema_version": 1}


def renamed(cells: Cells) -> None:
    for number, each in enumerate(cells):
        if mark := each["metadata"].get("nbgrader"):
            mark["grade_id"] = f"mine-{number}"


def no_marks(cells: Cells) -> None:
    for each in cells:
        each["metadata"] = {"nbgrader": None}


def no_metadata(cells: Cells) -> None:
    for number, each in enumerate(cells):
        each["metadata"] = [[], "", 3][number % 3]


def marks_exchanged(cells: Cells) -> None:
    cell(cells, "store-solution")["metadata"] = copy.deepcopy(cell(cells, "store-load")["metadata"])


def split(cells: Cells) -> None:
    index = cells.index(cell(cells, "store-solution"))
    second = copy.deepcopy(cells[index])
    cells[index]["source"], second["source"] = CODE.split("    return 1")[0], "    return 1\n"
    cells.insert(index + 1, second)


def edited(cells: Cells) -> None:
    cell(cells, "store-test")["source"] = "3.0"
    cell(cells, "store-contract")["source"] = "Do as you like."


def magic_lost(cells: Cells) -> None:
    cell(cells, "store-solution")["source"] = CODE.partition("\n")[2]


def odd_names(cells: Cells) -> None:
    for each in cells:
        each["id"] = '"><script>' if each["cell_type"] == "code" else "same"


def odd_parts(cells: Cells) -> None:
    cells += [None, 3, {}, {"cell_type": "heading", "source": ["a", 3, "b"]}, {"cell_type": "code", "source": {}}]  # type: ignore[list-item]
    cells += [{"cell_type": "markdown", "source": "\ud800 half", "attachments": {"a": {"image/svg+xml": "<svg>"}}}]


@pytest.mark.parametrize(
    "change",
    [
        nothing,
        copied,
        copied_as_starter,
        deleted,
        retyped,
        reordered,
        flipped,
        renamed,
        no_marks,
        no_metadata,
        marks_exchanged,
        edited,
        odd_names,
        odd_parts,
    ],
)
def test_the_answers_stay(change: Callable[[Cells], None]) -> None:
    assert answers(after(change)) == (CODE, "Because.")


def test_what_was_not_touched_needs_no_repair() -> None:
    repaired = checked(repair(student(), RELEASED))
    assert repaired.notes == ()
    assert [each["id"] for each in repaired.notebook["cells"]] == [each["id"] for each in RELEASED["cells"]]
    plain = [text(each) for each in repaired.notebook["cells"] if "nbgrader" not in each["metadata"]]
    assert plain == [text(each) for each in RELEASED["cells"] if "nbgrader" not in each["metadata"]]


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (copied, "the cell store was there 2 times; one of them counts"),
        (deleted, "the cell store was not there and was put back"),
        (retyped, "the cell store-solution had become a raw cell and is a code cell again"),
        (flipped, "the cell store had lost or changed nbgrader's marks, which are those of the release again"),
        (edited, "the cell store-contract was changed and is as it was released again"),
        (split, "the cell store-solution was split in 2 cells, which are joined again"),
    ],
)
def test_what_was_done_is_noted(change: Callable[[Cells], None], note: str) -> None:
    assert note in after(change).notes


def test_a_split_cell_is_joined() -> None:
    code, _ = answers(after(split))
    assert [line for line in code.split("\n") if line] == [line for line in CODE.split("\n") if line]


def test_a_lost_magic_line_leaves_the_code() -> None:
    assert answers(after(magic_lost))[0] == CODE.partition("\n")[2]


def test_deleted_cells_come_back_in_their_order() -> None:
    names = [grade_id(each) for each in marked(after(deleted).notebook)]
    assert names == [grade_id(each) for each in marked(RELEASED)]


@pytest.mark.parametrize("thing", [None, 3, "notebook", [], {}, {"cells": {}}, {"nbformat": 4}])
def test_what_is_no_notebook_becomes_the_release(thing: object) -> None:
    repaired = checked(repair(thing, RELEASED))
    assert [text(each) for each in repaired.notebook["cells"]] == [text(each) for each in RELEASED["cells"]]


def test_an_empty_notebook_gets_every_marked_cell() -> None:
    assert len(checked(repair({"cells": []}, RELEASED)).notebook["cells"]) == len(marked(RELEASED))


def test_a_notebook_of_version_3_is_read() -> None:
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": CODE}]}], "nbformat": 3}
    assert answers(checked(repair(old, RELEASED)))[0] == CODE


def test_a_release_without_ids_will_do() -> None:
    released = copy.deepcopy(RELEASED)
    for each in released["cells"]:
        del each["id"]
    repaired = repair(student(), released)
    nbformat.validate(nbformat.from_dict(repaired.notebook))
    assert answers(repaired) == (CODE, "Because.")


def test_the_student_is_not_changed_by_it() -> None:
    notebook = student()
    before = copy.deepcopy(notebook)
    repair(notebook, RELEASED)
    assert notebook == before


def test_pictures_stay_and_nothing_else_that_is_attached() -> None:
    def attach(cells: Cells) -> None:
        bundle = {"image/png": "aGVsbG8=", "text/html": "<script>"}
        pictures = {"a.png": bundle, '"><script>.png': bundle, "b.svg": {"image/svg+xml": "aGVsbG8="}}
        cell(cells, "store-why").update(source="![a](attachment:a.png)", attachments=pictures)

    (why,) = [each for each in marked(after(attach).notebook) if grade_id(each) == "store-why"]
    assert why["attachments"] == {"a.png": {"image/png": "aGVsbG8="}} and why["source"] == "![a](attachment:a.png)"


@pytest.mark.parametrize(
    "words",
    [
        "Words, **bold**, `code`, [a link](https://example.org/?a=1&b=2 'title').",
        "1 < 2 and 3 > 2 and x <= y",
        "| a | b |\n|:--|--:|\n| 1 | 2 |",
        "```python\nif a:\n    b\n```",
        "$a + b$ and\n\n$$c$$",
        "- [ ] to do\n- [x] done",
        "YOUR ANSWER HERE",
        "",
    ],
)
def test_words_stay_as_they_are(words: str) -> None:
    assert harmless(words, {}) == words


@pytest.mark.parametrize(
    "words", ["<script>a</script>", "`List<int>`", "<!-- a -->", "<https://a.b>", "</div>", "<?php"]
)
def test_no_tag_begins(words: str) -> None:
    made = harmless(words, {})
    assert made.replace(JOINER, "") == words and f"<{JOINER}" in made


@pytest.mark.parametrize(
    "words",
    [
        "[x](javascript:alert(1))",
        "[x](JaVa&#115;cript:alert(1))",
        "[x][1]\n\n[1]: javascript:alert(1)",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "![x](data:image/svg+xml;base64,PHN2Zz4=)",
        "[x](vbscript:a)",
        "![x](attachment:missing.png)",
        "```mermaid\ngraph TD\n```",
    ],
)
def test_what_might_run_is_shown_as_it_was_written(words: str) -> None:
    assert harmless(words, {}) == fenced(words)
    assert harmless(fenced(words), {}) == fenced(words)


def test_a_text_without_end_is_cut() -> None:
    made = harmless("[" * 1_000_000, {})
    assert len(made) < 60_000 and "there were 1000000 characters" in made and harmless(made, {}) == made
