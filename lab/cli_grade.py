"""`recovery-lab grade`: a class judged in parallel, in the sandbox, into nbgrader's gradebook."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lab.cli import Refusal
from lab.cli_check import ended_in_one_line, find_unit

if TYPE_CHECKING:
    from graders.course.batch import Done
    from graders.engine.sandbox import Mode

ALL_GRADED, SOME_NOT = 0, 1
CONNECTING = 5  # seconds until a scheduler must have answered


@click.command("grade")
@click.argument("unit", default="receiver")
@click.option(
    "--course",
    type=click.Path(path_type=Path),
    default=Path("."),
    show_default="this folder",
    help="The course that `recovery-lab course create` made.",
)
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that judge. [default: one for each core]")
@click.option("--scheduler", metavar="ADDRESS", help="Judge on a Dask cluster instead: tcp://host:port.")
@click.option("--student", "students", multiple=True, help="Grade this student only; may be given several times.")
@click.option("--again", is_flag=True, help="Write every grade anew, also where nothing has changed.")
@click.option(
    "--sandbox",
    type=click.Choice(["require", "auto", "off"]),
    default="require",
    show_default=True,
    help="Whether to shut students' programs in.",
)
def grade(
    unit: str,
    course: Path,
    workers: int | None,
    scheduler: str | None,
    students: tuple[str, ...],
    again: bool,
    sandbox: Mode,
) -> NoReturn:
    """Judge what students have handed in for UNIT, and write the grades into the course's gradebook.

    May be ended at any moment and run again. Exit status: 0 everybody is graded, 1 somebody could not be or waits for
    a person, 2 wrong usage.
    """
    from graders.course.batch import Batch, students_of
    from graders.course.gradebook import NoCourse
    from graders.course.secret import NoSecret
    from graders.engine import sandbox as sandboxes

    chosen = find_unit(unit)
    course = course.resolve()
    workers = workers or os.cpu_count() or 1
    with ended_in_one_line("what is graded stays graded; the same command goes on"), ExitStack() as stack:
        try:
            if scheduler is None:
                sandboxes.wanted(sandbox)
            batch = Batch(course, chosen, _executor(workers, scheduler, stack), workers, sandbox)
            there = students_of(course, chosen)
            if unknown := sorted({*students} - {*there}):
                raise Refusal(f"{unknown[0]} has handed in nothing: {course / 'submitted'} has no such folder")
            wanted = list(students) or there
            if not wanted:
                raise Refusal(
                    f"nobody has handed anything in: put it under {course / 'submitted'}/STUDENT/{chosen.name}/"
                )
            done = _show(batch.grade(wanted, again=again), len(wanted))
        except (NoCourse, NoSecret, sandboxes.NoSandbox) as trouble:
            raise Refusal(str(trouble)) from None
    sys.exit(_summary(done))


def _executor(workers: int, scheduler: str | None, stack: ExitStack) -> Callable[[], Executor]:
    """What makes an executor; on a cluster all of them use one connection, which `stack` closes."""
    if scheduler is not None:
        return partial(_client(scheduler, stack).get_executor, pure=False)  # a judgement that failed is not kept
    context = multiprocessing.get_context("spawn")
    return lambda: ProcessPoolExecutor(workers, context, initializer=_end_with, initargs=(os.getpid(),))


def _end_with(parent: int) -> None:
    """A worker does not outlive the batch, whatever ends that."""
    from graders.engine import lifeline

    lifeline.die_with(parent)


def _client(scheduler: str, stack: ExitStack) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise Refusal("--scheduler needs Dask: pip install distributed") from None
    try:
        return stack.enter_context(Client(scheduler, timeout=CONNECTING, set_as_default=False))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise Refusal(f"no Dask scheduler answers at {scheduler}: {error}") from None


def _show(results: Iterator[Done], total: int) -> list[Done]:
    """Progress on a terminal; elsewhere a line for each student who needs one."""
    from graders.report.parts import visible

    done: list[Done] = []
    with click.progressbar(
        results,
        length=total,
        label="graded",
        show_pos=True,
        show_eta=True,
        item_show_func=lambda each: visible(each.student) if each else "",
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
    ) as bar:
        done.extend(bar)
    return done


def _summary(done: list[Done]) -> int:
    from graders.report.parts import visible

    for each in done:
        if each.trouble:
            click.echo(f"{visible(each.student)}: NOT GRADED, {visible(each.trouble)}")
        elif each.undecided:
            click.echo(f"{visible(each.student)}: a person decides about {', '.join(each.undecided)}")
    changed = sum(each.changed and not each.trouble for each in done)
    trouble = sum(bool(each.trouble) for each in done)
    waiting = sum(bool(each.undecided) for each in done)
    same = len(done) - changed - trouble
    click.echo(
        f"{len(done)} students: {changed} graded, {same} unchanged, {waiting} wait for a person, {trouble} not graded"
    )
    return SOME_NOT if trouble or waiting else ALL_GRADED
