"""The program that one step is judged on: the learner's sections, with the reference's in place of those that fail."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from graders.engine.sections import PREAMBLE, LearnerFile, Line

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

    @cached_property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines) + "\n"

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

    A replaced section of the learner's still runs, before its stand-in, because later sections may use its helpers; one
    in `unloadable` does not run at all. The stand-in's own helpers are renamed, so that they hide nobody's.
    """
    lines: list[Line] = list(learner.sections[PREAMBLE])
    for step in upto:
        if step not in unloadable:
            lines += learner.sections.get(step, ())
        if step in replaced:
            lines += stand_in(reference, step, frozenset(public))
    return Program(learner.name, tuple(lines))


def stand_in(reference: LearnerFile, step: str, public: frozenset[str]) -> list[Line]:
    """The reference's section of `step`, its helpers renamed."""
    helpers = frozenset().union(*(_defined(reference.text(name)) for name in reference.sections if name != PREAMBLE))
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


@lru_cache(maxsize=64)
def _defined(text: str) -> frozenset[str]:
    """The names that a section's top level defines, imports aside."""
    names: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(names)
