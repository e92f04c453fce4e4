"""`recovery-lab watch`: judge a file each time it is saved, for people who write in an editor."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab.cli import Refusal
from lab.cli_check import WIDEST, ended_in_one_line, find_unit, for_stream, painter

if TYPE_CHECKING:
    from graders.engine.rules import Step, Unit

LOOK_EVERY = 0.2  # seconds between two looks at the file
KEYS = "h hint   n next step   l list   r judge again   q quit"


@click.command("watch")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--unit", default="receiver", show_default=True, help="The unit that the file belongs to.")
@click.option("--seed", type=int, help="The seed of every judgement. [default: today's date]")
def watch(file: Path, unit: str, seed: int | None) -> None:
    """Judge FILE now and whenever it is saved, and show the first step that does not pass yet.

    Keys: h one more hint, n on to the next step, l list of all steps, r judge again, q quit.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refusal("watch needs a terminal; elsewhere use recovery-lab check")
    chosen = find_unit(unit)
    with ended_in_one_line("no longer watching"), _keys() as keyboard:
        _Watch(file, chosen, seed).run(keyboard)


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Single keys, without Enter; the terminal is as before afterwards."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


class _Watch:
    """What is shown, and where the learner is."""

    def __init__(self, file: Path, unit: Unit, seed: int | None) -> None:
        self.file = file
        self.unit = unit
        self.seed = seed
        self.current = 0  # of the unit's steps
        self.hints = 0  # given for the current step
        self.passes = False

    def run(self, keyboard: int) -> None:
        seen = self.version()
        self.judge()
        while True:
            key = os.read(keyboard, 1) if select.select([keyboard], [], [], LOOK_EVERY)[0] else b""
            if key in (b"q", b"\x04"):
                return
            now = self.version()
            if now != seen or key == b"r":
                seen = now
                self.judge()
            elif key == b"h":
                self.hint()
            elif key == b"l":
                self.list_steps()
            elif key == b"n":
                self.on()

    def version(self) -> tuple[int, int, int] | None:
        """What changes when the file is saved; editors also put a new file in place of the old one."""
        try:
            found = os.stat(self.file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    @property
    def step(self) -> Step:
        return self.unit.steps[self.current]

    def say(self, text: str = "") -> None:
        click.echo(for_stream(text, sys.stdout))

    def judge(self) -> None:
        """Judge the steps up to the current one; the first that fails becomes the current one."""
        from graders.judge import judge
        from graders.report import text
        from graders.report.parts import points, visible
        from lab import journal
        from lab.source import CannotRead, NotText, read

        click.clear()
        try:
            source = read(self.file)
        except (CannotRead, NotText) as trouble:
            self.say(f"{visible(str(trouble))}\n\nwaiting for {visible(str(self.file))} to be saved   q quit")
            return
        names = [step.name for step in self.unit.steps[: self.current + 1]]
        self.say(f"judging {', '.join(names)} …")
        verdict = judge(source, unit=self.unit.name, steps=names, seed=self.seed, sandbox="auto")
        with contextlib.suppress(Exception):  # a folder that cannot be written to must not stop the watching
            journal.note(self.file, source, self.unit, verdict)
        failed = [number for number, step in enumerate(verdict.steps) if not step.passed]
        before, self.current = self.current, failed[0] if failed else self.current
        self.hints = self.hints if self.current == before else 0
        self.passes = not failed
        click.clear()
        if failed:
            width = min(WIDEST, shutil.get_terminal_size().columns - 1)
            only = replace(verdict, steps=(verdict.steps[self.current],))
            self.say(text.render(only, file=str(self.file), width=width, paint=painter()))
        if not failed:
            given = sum(step.score for step in verdict.steps)
            self.say(f"✓ {self.step.name} passes ({points(given)} points so far).")
            last = self.current == len(self.unit.steps) - 1
            self.say("Everything passes. Well done." if last else "Press n for the next step.")
        self.foot()

    def foot(self) -> None:
        self.say(f"\n{self.step.name}, step {self.current + 1} of {len(self.unit.steps)}   {KEYS}")

    def hint(self) -> None:
        hints = self.step.hints
        given = min(self.hints, len(hints) - 1)
        self.hints = given + 1
        self.say(f"\nHint {given + 1} of {len(hints)}: {hints[given]}" if hints else "\nThere are no hints here.")

    def list_steps(self) -> None:
        from lab import journal
        from lab.source import CannotRead, NotText, read

        try:
            table = journal.rows(self.file, read(self.file), self.unit)
        except (CannotRead, NotText) as trouble:
            self.say(f"\n{trouble}")
            return
        self.say(f"\n{journal.as_text(table)}")

    def on(self) -> None:
        if not self.passes:
            self.say(f"\n{self.step.name} does not pass yet.")
        elif self.current < len(self.unit.steps) - 1:
            self.current += 1
            self.hints = 0
            self.judge()
