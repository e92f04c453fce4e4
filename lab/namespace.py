"""Bringing a learner's file into the notebook: imported in a child first, then here, its public names handed over."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from IPython.core.getipython import get_ipython

from graders.engine.rules import Unit
from graders.engine.section_writer import is_starter, owner_of, section_text, up_to
from lab import NOTEBOOK_NAMES, learner_file, trial

RESERVED = {*NOTEBOOK_NAMES, "display", "get_ipython", "In", "Out", "exit", "quit"}
OUTPUT_LIMIT = 20_000  # characters that a file may print while it is imported

_ours: dict[str, object] = {}  # name to the object that was last put into the notebook under it


def say(line: str) -> None:
    """Tell the learner something in one line."""
    print(line, flush=True)


def names_of(unit: Unit) -> list[str]:
    """The unit's steps by name, in order."""
    return [step.name for step in unit.steps]


def bring_in(unit: Unit, step: str) -> None:
    """Import the file up to `step`, in a child first, and put its public names into the notebook."""
    path, names = Path.cwd() / unit.file_name, names_of(unit)
    source = learner_file.read(path)
    program = up_to(source, step, names)
    found = trial.trouble(program, path)
    if found is None:
        found = _import_here(program, path)
    if found is None:
        _say_done(unit, step, program)
        return
    _forget(unit.step(step).public)
    say(_explain(unit, step, program, found))


def _import_here(program: str, path: Path) -> trial.Trouble | None:
    printed = _Cut()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            module = trial.load(program, path)
    except (Exception, SystemExit) as error:
        return trial.describe(error, path)
    public = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
    _hand_over({name: vars(module)[name] for name in public if name in vars(module)})
    return None


def _hand_over(names: dict[str, object]) -> None:
    for taken in sorted(RESERVED & names.keys()):
        say(f"{taken} of your file is not brought in: the notebook has a {taken} of its own.")
        del names[taken]
    _ours.update(names)
    if shell := get_ipython():
        shell.push(names)  # type: ignore[no-untyped-call]


def _forget(names: tuple[str, ...]) -> None:
    """Take back what an earlier version of a section had put here, so that nobody plays with the old one."""
    shell = get_ipython()
    for name in names:
        if shell and name in _ours and shell.user_ns.get(name) is _ours[name]:
            del shell.user_ns[name]


def _say_done(unit: Unit, step: str, program: str) -> None:
    public = unit.step(step).public
    lacking = [name for name in public if name not in vars(sys.modules[Path(unit.file_name).stem])]
    if lacking:
        say(f"{step} is in {unit.file_name}, but it does not define {', '.join(lacking)}.")
        return
    unwritten = is_starter(section_text(program, step, names_of(unit)) or "")
    rest = " It still raises NotImplementedError where your code goes." if unwritten else ""
    say(f"{step} is in {unit.file_name}. Ready here: {', '.join(public)}.{rest}")


def _explain(unit: Unit, step: str, program: str, found: trial.Trouble) -> str:
    """One line: where, what the line says, what happened, and what to do where that is known."""
    lines = program.split("\n")
    words = lines[found.line - 1].strip()[:80] if 0 < found.line <= len(lines) else ""
    where = f"{unit.file_name}, line {found.line} `{words}`: " if words else f"{unit.file_name}: "
    owner = owner_of(program, found.line, names_of(unit))
    advice = f" (in {owner}, an earlier step)" if owner and owner != step else ""
    if found.reason.startswith("NotImplementedError"):
        advice += ". This is where your code goes."
    elif words.startswith(("%", "!")):
        advice += ". Lines with % or ! are for notebooks only."
    elif home := next((other.name for other in unit.steps if found.missing in other.public), None):
        advice += f'. {found.missing} belongs to {home}: run that step, or catch_up("{step}").'
    return f"{where}{found.reason.rstrip('.')}{advice}"


class _Cut:
    """Standard output for a file that may print far too much."""

    def __init__(self) -> None:
        self.room = OUTPUT_LIMIT
        self.real = sys.stdout

    def write(self, words: str) -> int:
        if 0 < self.room < len(words):
            words = words[: self.room] + "\n… and more; not shown.\n"
            self.real.write(words)
            self.room = 0
        elif self.room > 0:
            self.real.write(words)
            self.room -= len(words)
        return len(words)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)
