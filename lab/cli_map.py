"""`recovery-lab map`: the learner's own source, and beside each line what happens if the power goes out there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click

from lab.cli import Refusal
from lab.cli_check import ALL_PASS, SOME_FAIL, ended_in_one_line, find_unit, for_stream, painter, refused_in_one_line


@click.command("map")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--unit", default="receiver", show_default=True, help="The unit that the file belongs to.")
@click.option("--seed", type=int, help="The same file and seed give the same map. [default: today's date]")
@click.option("--states", is_flag=True, help="Say for each line what the store and the publisher have there.")
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Write a page to this file.")
def crash_map(file: Path, unit: str, seed: int | None, states: bool, page: Path | None) -> NoReturn:
    """Draw the crash map of FILE: its own lines, each with what happens if the power goes out there.

    Exit status: 0 all lines are fine, 1 some line breaks a promise, 2 wrong use or no such file.
    """
    from graders import judge
    from graders.report import crash_map as drawn
    from lab.source import read

    with refused_in_one_line(), ended_in_one_line():
        found = judge.crash_map(read(file), unit=find_unit(unit).name, seed=seed, sandbox="auto")
    if found.finding is not None and not found.fates:
        click.echo(
            for_stream(f"no map yet: {found.rule} fails before anything is ended\n{found.finding.message}", sys.stdout)
        )
        sys.exit(SOME_FAIL)
    if page is None:
        click.echo(for_stream(drawn.text(found, paint=painter(), detail=states), sys.stdout))
    else:
        _write_page(page, drawn.page(found))
    sys.exit(SOME_FAIL if found.finding is not None else ALL_PASS)


def _write_page(path: Path, body: str) -> None:
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Crash map</title>'
    try:
        path.write_text(f'{head}<body style="font-family: sans-serif; margin: 2em;">{body}</body></html>\n', "utf-8")
    except OSError as error:
        raise Refusal(f"{path} cannot be written: {error.strerror}") from None
    click.echo(f"written to {path}")
