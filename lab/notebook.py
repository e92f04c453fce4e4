"""What the cells of a notebook call: `%%step`, `check`, `hint` and their like, and the widgets.

Each of them answers a mistake with one line on standard output and goes on: nbgrader reads anything on standard error,
and any exception, as no points.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.display import display

from graders import judge as judging
from graders import registry
from graders.engine.rules import Unit
from graders.engine.section_writer import cell_body, foreign_marker, is_starter, place, section_text
from graders.judge import judge
from graders.report import crash_map as drawn
from graders.report import html, text
from graders.verdict import Outcome, Verdict
from lab import NOTEBOOK_NAMES, journal, learner_file, namespace
from lab.journal import State
from lab.learner_file import FileTrouble
from lab.namespace import names_of, say
from lab.workspace import starter_of

_hints_given: Counter[str] = Counter()
# nbgrader runs the test cell anyway: judging a step twice helps nobody there.
_checks_itself = "NBGRADER_EXECUTION" not in os.environ and os.environ.get("RECOVERY_LAB_AUTO_CHECK") != "off"


class Score(float):
    """Points. nbgrader reads them as the last value of a test cell: always finite, and shown as a plain number."""

    def __new__(cls, points: float, most: float) -> Score:
        return super().__new__(cls, min(max(points, 0.0), most) if math.isfinite(points) else 0.0)

    def __repr__(self) -> str:
        return format(float(self), "g")


@magics_class
class StepMagics(Magics):
    """The notebook's cell magics."""

    @cell_magic
    def step(self, line: str, cell: str) -> None:
        """`%%step framing`: this cell is the section `framing` of client.py."""
        with _one_line_for_mistakes():
            step = line.strip()
            unit = _unit_of(step)
            if _write_cell(unit, step, cell_body(cell)):
                namespace.bring_in(unit, step)
                if _checks_itself and not is_starter(cell_body(cell)):
                    check(step)


def register(shell: Any) -> None:
    """Give a notebook its magic and its functions."""
    shell.register_magics(StepMagics)
    shell.push({name: globals()[name] for name in NOTEBOOK_NAMES})


def check(step: str | None = None) -> Score:
    """Judge the file in this folder, one step of it or all, show the report, and return the points."""
    with _one_line_for_mistakes(), contextlib.redirect_stderr(sys.stdout):
        unit = _unit_of(step) if step is not None else _unit_here()
        path = Path.cwd() / unit.file_name
        source = learner_file.read(path)
        if not path.exists():
            say(f"There is no {unit.file_name} here yet: run the cell that starts with %%step {step or ''}".rstrip())
            return Score(0, 0)
        verdict = judge(source, unit=unit.name, name=unit.file_name, steps=None if step is None else [step])
        with contextlib.suppress(FileTrouble):  # what cannot be noted must not cost the points
            journal.note(path, source, unit, verdict)
        _show(verdict)
        return Score(verdict.score, verdict.max_score)
    return Score(0, 0)


def crash_map() -> None:
    """Show the file in this folder, each of its lines with what happens if the power goes out there."""
    with _one_line_for_mistakes(), contextlib.redirect_stderr(sys.stdout):
        unit = _unit_here()
        try:
            found = judging.crash_map(learner_file.read(Path.cwd() / unit.file_name), unit=unit.name)
        except KeyError as nothing:
            say(f"No map yet: {nothing.args[0]}.")
            return
        if found.finding is not None and not found.fates:
            say(f"No map yet, {found.rule} fails before anything is ended:\n{found.finding.message}")
            return
        maps = {"text/plain": drawn.text(found), "text/html": drawn.page(found)}
        display(maps, raw=True)  # type: ignore[no-untyped-call]


def watch_store(path: str = "store.db") -> None:
    """Show cursor, total and ledger of the store at `path`, live, also while another process writes it."""
    from lab.widgets import store_view  # takes a moment to import, and most notebooks do without

    store_view.show(Path.cwd() / path)


def crash_studio() -> None:
    """Show the file in this folder; end it at a line of your choice, start it again, and see what its store says."""
    with _one_line_for_mistakes():
        from lab.widgets import crash_studio as studio

        studio.show(Path.cwd() / _unit_here().file_name)


def hint(step: str) -> None:
    """Say one more hint for `step` with each call, the mildest first."""
    with _one_line_for_mistakes():
        hints = _unit_of(step).step(step).hints
        given = min(_hints_given[step], len(hints) - 1)
        _hints_given[step] = given + 1
        left = len(hints) - given - 1
        say(f"Hint {given + 1} of {len(hints)}: {hints[given]}" if hints else f"There are no hints for {step}.")
        say(f'({left} left: hint("{step}") again)' if left > 0 else "(that was the last one)")


def progress() -> None:
    """Show the steps: which pass, with how many points, and what is next."""
    with _one_line_for_mistakes():
        unit = _unit_here()
        path = Path.cwd() / unit.file_name
        table = journal.rows(path, learner_file.read(path), unit)
        shown = {"text/plain": journal.as_text(table), "text/html": journal.as_html(table)}
        display(shown, raw=True)  # type: ignore[no-untyped-call]


def solution(step: str, *, give_up: bool = False) -> None:
    """Show the reference's code for `step`: once it passes, or when you say `give_up=True`."""
    with _one_line_for_mistakes():
        unit = _unit_of(step)
        if not _may_see(unit, step, give_up):
            say(f'{step} does not pass yet. hint("{step}") helps; with give_up=True you see the solution all the same.')
            return
        code = section_text(unit.reference(), step, names_of(unit)) or ""
        display({"text/plain": code, "text/markdown": f"```python\n{code}\n```"}, raw=True)  # type: ignore[no-untyped-call]


def compare(step: str) -> None:
    """Show where your code for `step` differs from the reference's, once it passes."""
    with _one_line_for_mistakes():
        unit = _unit_of(step)
        if not _may_see(unit, step, False):
            say(f"{step} does not pass yet: comparing comes afterwards.")
            return
        mine = section_text(learner_file.read(Path.cwd() / unit.file_name), step, names_of(unit)) or ""
        theirs = section_text(unit.reference(), step, names_of(unit)) or ""
        lines = difflib.unified_diff(mine.split("\n"), theirs.split("\n"), "yours", "the reference's", lineterm="", n=2)
        shown = "\n".join(lines) or "There is no difference."
        display({"text/plain": shown, "text/markdown": f"```diff\n{shown}\n```"}, raw=True)  # type: ignore[no-untyped-call]


def reset(step: str) -> None:
    """Put the starter back in place of your section; what you had is kept in a file of its own."""
    with _one_line_for_mistakes():
        unit = _unit_of(step)
        path, names = Path.cwd() / unit.file_name, names_of(unit)
        starter = starter_of(unit, step)
        with learner_file.locked(path):
            source = learner_file.read(path)
            mine = section_text(source, step, names)
            if mine == starter:
                say(f"{step} in {path.name} is the starter already.")
                return
            kept = f" What you had is kept in {learner_file.back_up(path, step, mine)}." if mine else ""
            learner_file.write(path, place(source, step, starter, names))
            learner_file.remember(path, {step: starter})
        say(f"{step} in {path.name} is the starter again.{kept} A cell with it comes below.")
        if shell := get_ipython():
            shell.set_next_input(f"%%step {step}\n{starter}")


def auto_check(on: bool = True) -> None:
    """Whether running a `%%step` cell also judges it, which it does unless you say `auto_check(False)`."""
    global _checks_itself
    _checks_itself = bool(on)
    say(f"Running a %%step cell {'judges it, too' if on else 'only writes the file'}.")


def catch_up(step: str) -> None:
    """Write the reference's sections of the steps before `step`, where the file has none, and import them."""
    with _one_line_for_mistakes():
        unit = _unit_of(step)
        earlier = names_of(unit)[: names_of(unit).index(step)]
        if not earlier:
            say(f"{step} is the first step: there is nothing before it.")
            return
        _fill(unit, earlier)
        namespace.bring_in(unit, earlier[-1])


@contextlib.contextmanager
def _one_line_for_mistakes() -> Iterator[None]:
    try:
        yield
    except FileTrouble as trouble:
        say(str(trouble))


def _may_see(unit: Unit, step: str, give_up: bool) -> bool:
    """Whether the reference's code may be shown: the step passes as it stands, or the learner has given up on it."""
    path = Path.cwd() / unit.file_name
    row = next(row for row in journal.rows(path, learner_file.read(path), unit) if row.step == step)
    if row.state is not State.PASSED and give_up:
        journal.give_up(path, step)
    return row.state is State.PASSED or row.gave_up or give_up


def _unit_of(step: str) -> Unit:
    try:
        return registry.find_step(step)[0]
    except KeyError as unknown:
        sentence = str(unknown.args[0]) if step else f"which step? {', '.join(_every_step())}"
        raise FileTrouble(sentence[0].upper() + sentence[1:]) from None


def _every_step() -> list[str]:
    return [name for unit in registry.units() for name in names_of(unit)]


def _unit_here() -> Unit:
    """The unit whose file is in this folder."""
    units = registry.units()
    return next((unit for unit in units if (Path.cwd() / unit.file_name).exists()), units[0])


def _write_cell(unit: Unit, step: str, body: str) -> bool:
    """Make `body` the file's section `step`; False where there is nothing to write."""
    if not body.strip():
        say(f"This cell is empty: {unit.file_name} stays as it was.")
        return False
    if foreign := foreign_marker(body, step, names_of(unit)):
        say(f"Line {foreign[0]} of this cell, `{foreign[1]}`, starts another cell: {unit.file_name} stays as it was.")
        return False
    path = Path.cwd() / unit.file_name
    with learner_file.locked(path):
        source = learner_file.read(path)
        if _make_room(unit, path, source, step, body):
            learner_file.write(path, place(source, step, body, names_of(unit)))
            learner_file.remember(path, {step: body})
    return True


def _make_room(unit: Unit, path: Path, source: str, step: str, body: str) -> bool:
    """Save a section edited by hand before it is replaced; False where it is more than this cell and stays."""
    there = section_text(source, step, names_of(unit))
    ours = (None, body, section_text(unit.reference(), step, names_of(unit)))
    if there in ours or learner_file.fingerprint(there or "") == learner_file.remembered(path).get(step):
        return True
    if is_starter(body) and not is_starter(there or ""):
        say(f"{path.name} has your own {step} already and this cell is still the starter: the file stays as it was.")
        return False
    name = learner_file.back_up(path, step, there or "")
    say(f"{step} in {path.name} had been edited elsewhere: that text is kept in {name}.")
    return True


def _fill(unit: Unit, steps: list[str]) -> None:
    path, names = Path.cwd() / unit.file_name, names_of(unit)
    reference = unit.reference()
    with learner_file.locked(path):
        source = learner_file.read(path)
        missing = {
            step: section_text(reference, step, names) or ""
            for step in steps
            if section_text(source, step, names) is None
        }
        for step, body in missing.items():
            source = place(source, step, body, names)
        if missing:
            learner_file.write(path, source)
            learner_file.remember(path, missing)
    if missing:
        say(f"Written to {path.name} from the reference: {', '.join(missing)}.")
    if kept := [step for step in steps if step not in missing]:
        say(f"Yours, and left alone: {', '.join(kept)}.")


def _show(verdict: Verdict) -> None:
    if verdict.broken:
        _say_judge_failed(verdict)
    report = {"text/plain": text.render(verdict), "text/html": html.render(verdict)}
    display(report, raw=True)  # type: ignore[no-untyped-call]


def _say_judge_failed(verdict: Verdict) -> None:
    failed = [rule for step in verdict.steps for rule in step.rules if rule.outcome is Outcome.ERROR]
    say("=" * 72)
    say(f"THE JUDGE ITSELF FAILED at {', '.join(rule.rule for rule in failed)}. This is not your mistake and costs")
    say("no points. Please show your instructor this output.")
    for rule in failed:
        say(f"  {rule.rule}: {rule.message}")
    say("=" * 72)
