"""`recovery-lab course`: what an instructor needs besides nbgrader's own commands."""

from __future__ import annotations

from pathlib import Path

import click

from lab.cli import Refusal


@click.group("course")
def course() -> None:
    """A course with nbgrader: many learners, their submissions and their grades."""


@course.command("create")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def create(folder: Path) -> None:
    """Make a course in DIR, a new or empty folder: nbgrader's settings, the notebooks, a secret.

    Exit status: 0 it is there, 2 it cannot be made.
    """
    from graders.course.create import CannotCreate
    from graders.course.create import create as make
    from graders.report.parts import visible

    try:
        made = make(folder)
    except CannotCreate as problem:
        raise Refusal(visible(str(problem))) from None
    click.echo(f"made in {visible(str(folder))}: {', '.join(made)}")
    click.echo("README.md there says what comes next; begin with `nbgrader generate_assignment receiver`")
