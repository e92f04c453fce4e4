"""One student's submission folder, read as what it is: files that anybody may have made, for any purpose.

The learner's file is put together as running their notebooks would: `client.py` from the folder first, then every cell
that starts with `%%step`, where a cell that is still the starter takes nothing away.
"""

from __future__ import annotations

import hashlib
import io
import os
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graders.course.cells import LARGEST, Written, cells_of, chosen, parse, written
from graders.course.files import Refused, kind_of, open_folder, read_plain
from graders.engine.rules import Unit
from graders.engine.section_writer import foreign_marker, is_starter, place, section_text
from graders.judge import LONGEST_FILE
from graders.report.parts import visible

NOT_THERE = "was not handed in"


@dataclass(frozen=True)
class Problem:
    """Something in a submission that could not be used, in a line for the student and the instructor."""

    file: str
    text: str

    def __str__(self) -> str:
        return visible(f"{self.file} {self.text}").replace("\n", "\\n")


@dataclass(frozen=True)
class Submission:
    """What a student handed in: the whole file that is to be judged, and what could not be used for it.

    `digest` is of everything that can change the grade: two submissions with the same digest get the same points from
    the same seed.
    """

    student: str
    source: str
    problems: tuple[Problem, ...]
    digest: str

    def about(self, notebook: str, others: Sequence[str]) -> list[Problem]:
        """The problems that belong on the page of `notebook`: all but those of the `others`' pages."""
        return [problem for problem in self.problems if problem.file == notebook or problem.file not in others]


def notebooks_of(unit: Unit) -> dict[str, str]:
    """The names of the unit's notebooks, in order, and the step of each."""
    return {f"{number:02}_{step.name}.ipynb": step.name for number, step in enumerate(unit.steps, start=1)}


def read(folder: Path, unit: Unit) -> Submission:
    """Read `submitted/<student>/<unit>`. Nothing in it raises: what cannot be used is a problem of this student."""
    reader = _Reader(unit)
    try:
        handle = open_folder(folder)
    except Refused as refused:
        reader.report(folder.name, str(refused))
    else:
        try:
            reader.read(handle)
        finally:
            os.close(handle)
    digest = hashlib.sha256(f"{unit.name}\0{reader.source}".encode()).hexdigest()
    return Submission(folder.parent.name, reader.source, tuple(reader.problems), digest)


@dataclass
class _Reader:
    unit: Unit
    source: str = ""
    problems: list[Problem] = field(default_factory=list)

    def report(self, file: str, text: str) -> None:
        self.problems.append(Problem(file, text))

    def read(self, folder: int) -> None:
        names, expected = sorted(os.listdir(folder)), notebooks_of(self.unit)
        for name in names:
            if name not in expected and name != self.unit.file_name:
                self.look_at_other(name, folder)
        if self.unit.file_name in names:
            self.read_file(folder)
        for name, step in expected.items():
            if name in names:
                self.read_notebook(name, step, folder)
            else:
                self.report(name, NOT_THERE)

    def look_at_other(self, name: str, folder: int) -> None:
        """Nothing else is read. It is told only where the student may have meant something by it."""
        words = kind_of(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        if words and words != "a folder":
            self.report(name, f"is {words} and not a plain file: it was not opened")
        elif name.endswith(".ipynb"):
            self.report(name, "is no notebook of this assignment, so that nothing in it counts; was it renamed?")

    def read_file(self, folder: int) -> None:
        name = self.unit.file_name
        try:
            self.source = _decode(read_plain(name, LONGEST_FILE, folder))
        except FileNotFoundError:
            self.report(name, NOT_THERE)
        except Refused as refused:
            self.report(name, f"{refused}; only what is in the notebooks counts")

    def read_notebook(self, name: str, step: str, folder: int) -> None:
        try:
            cells = cells_of(parse(read_plain(name, LARGEST, folder)))
        except FileNotFoundError:
            self.report(name, NOT_THERE)
            return
        except Refused as refused:
            self.report(name, str(refused))
            return
        if cells is None:
            self.report(name, "is JSON, but no notebook")
            return
        texts = written(cells, self.names)
        if step not in {text.step for text in texts}:
            self.report(name, f"has no cell that starts with %%step {step}; is it a notebook of another assignment?")
        for text in _one_each(texts, self.names):
            self.put(name, text)

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.unit.steps]

    def put(self, name: str, text: Written) -> None:
        """Do to the file what `%%step` would have done."""
        where = f"has a cell for {text.step}"
        there = section_text(self.source, text.step, self.names)
        if not text.body.strip() or (is_starter(text.body) and there is not None and not is_starter(there)):
            return
        if foreign := foreign_marker(text.body, text.step, self.names):
            self.report(
                name, f"{where} in which line {foreign[0]}, {foreign[1]}, starts another one: it does not count"
            )
            return
        source = place(self.source, text.step, text.body, self.names)
        if len(source.encode()) > LONGEST_FILE:
            self.report(name, f"{where} that is longer than any program: it does not count")
            return
        self.source = source


def _one_each(texts: Sequence[Written], steps: Sequence[str]) -> Iterator[Written]:
    """Of several texts for one step in a notebook, the one that counts."""
    for step in steps:
        if text := chosen(texts, step):
            yield text


def _decode(data: bytes) -> str:
    """The text as Python would read it."""
    if b"\0" in data:
        raise Refused("has a NUL byte, which no program text has")
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        text = data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
        text.encode()  # some encodings give half a surrogate pair, which is no text
        return text
    except (SyntaxError, ValueError, LookupError):
        raise Refused("cannot be read as text") from None
