"""The program that one step is judged on: the learner's sections, with the reference's in place of those that fail."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from graders.engine.sections import NOT_PYTHON, PREAMBLE, LearnerFile, Line

STAND_IN_PREFIX = "_reference_"


@dataclass(frozen=True)
class Place:
    """A line of the learner's own file."""

    file: str
    line: int
    text: str
    function: str = "<module>"

    def __str__(self) -> str:
        inside = "" if self.function.startswith("<") else f", in {self.function}"
        return f"{self.file} line {self.line}{inside}: {self.text.strip()}"


@dataclass(frozen=True)
class Program:
    """Source text, and for each of its lines where it stands in the learner's file, if it does."""

    name: str
    lines: tuple[Line, ...]
    earlier: int = 0  # how many of the lines belong to the sections before the one that is judged

    @property
    def all_rows(self) -> range:
        """The lines, from 1."""
        return range(1, len(self.lines) + 1)

    @property
    def own_rows(self) -> range:
        """The lines of the section that is judged."""
        return range(self.earlier + 1, len(self.lines) + 1)

    @cached_property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines) + "\n"

    @cached_property
    def digest(self) -> str:
        """A name for the text."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def code_rows(self) -> tuple[int, ...]:
        """The lines, from 1, that are no part of a docstring."""
        texts: set[int] = set()
        for node in (inner for statement in _body(self.text) for inner in ast.walk(statement)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.end_lineno:
                texts |= set(range(node.lineno, node.end_lineno + 1))
        return tuple(row for row in self.all_rows if row not in texts)

    @cached_property
    def statement_rows(self) -> frozenset[int]:
        """The lines, from 1, on which a statement or an `except` begins that is no docstring."""
        nodes = (node for statement in _body(self.text) for node in ast.walk(statement))
        begins = {node.lineno for node in nodes if isinstance(node, ast.stmt | ast.ExceptHandler)}
        return frozenset(begins).intersection(self.code_rows)

    def place(self, line: int, function: str = "<module>") -> Place | None:
        """Line `line` (from 1) of this program as a place in the learner's file; None where the line is not theirs."""
        if not 1 <= line <= len(self.lines):
            return None
        found = self.lines[line - 1]
        return None if found.number is None else Place(self.name, found.number, found.text, function)


def compose(
    learner: LearnerFile,
    reference: LearnerFile,
    upto: Sequence[str],
    *,
    replaced: Collection[str] = (),
    unloadable: Collection[str] = (),
    public: Collection[str] = (),
) -> Program:
    """The program for the last step of `upto`, with the reference's sections for the steps in `replaced`.

    A replaced section of the learner's still runs, before its stand-in, where a later section uses more of it than its
    public names: helpers are free. One in `unloadable` never runs. The stand-in's own helpers are renamed, so that they
    hide nobody's.
    """
    lines: list[Line] = list(learner.sections[PREAMBLE])
    earlier = 0
    for position, step in enumerate(upto):
        earlier = len(lines)
        if step not in replaced:
            lines += learner.sections.get(step, ())
            continue
        later = [name for name in upto[position + 1 :] if name not in replaced]
        if step not in unloadable and _helpers_wanted(learner, reference, step, later, frozenset(public)):
            lines += learner.sections.get(step, ())
        lines += stand_in(reference, step, frozenset(public))
    return Program(learner.name, tuple(lines), earlier)


def _helpers_wanted(
    learner: LearnerFile, reference: LearnerFile, step: str, later: Sequence[str], public: frozenset[str]
) -> bool:
    """Whether sections after `step` use names of it that its stand-in does not bring."""
    own = _assigned(learner.text(step)) | _imported(learner.text(step))
    missing = own - public - _imported(reference.text(step))
    return any(missing & _used(learner.text(name)) for name in later)


def stand_in(reference: LearnerFile, step: str, public: frozenset[str]) -> list[Line]:
    """The reference's section of `step`, its helpers renamed."""
    helpers = frozenset().union(*(_assigned(reference.text(name)) for name in reference.sections if name != PREAMBLE))
    return [Line(row, None) for row in _renamed(reference.text(step), helpers - public).split("\n")]


@lru_cache(maxsize=64)
def _renamed(text: str, names: frozenset[str]) -> str:
    tree = _Renamer(names).visit(ast.parse(text))
    return ast.unparse(tree)


class _Renamer(ast.NodeTransformer):
    """Gives the reference's helpers names that no learner has."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def _new(self, name: str) -> str:
        return STAND_IN_PREFIX + name if name in self.names else name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._new(node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._new(node.name)
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.name = self._new(node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._new(node.name)
        return self.generic_visit(node)


@lru_cache(maxsize=256)
def _assigned(text: str) -> frozenset[str]:
    """The names that a section's top level defines, imports aside."""
    names: set[str] = set()
    for node in _body(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        else:
            found = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
            names |= {inner.id for inner in found if isinstance(inner.ctx, ast.Store)}
    return frozenset(names)


@lru_cache(maxsize=256)
def _imported(text: str) -> frozenset[str]:
    """The names that a section's top level imports."""
    imports = (node for node in _body(text) if isinstance(node, ast.Import | ast.ImportFrom))
    return frozenset((alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names)


@lru_cache(maxsize=256)
def _used(text: str) -> frozenset[str]:
    """Every name that a section reads."""
    names = {inner for node in _body(text) for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return frozenset(name.id for name in names)


def _body(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except NOT_PYTHON:
        return []
