"""`recovery-lab report` and `recovery-lab export`: what has come of a class, for its instructor and for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click

from lab.cli import Refusal
from lab.cli_check import ended_in_one_line, find_unit

ALL_THERE, SOME_NOT = 0, 1

of_a_course = click.option(
    "--course",
    type=click.Path(path_type=Path),
    default=Path("."),
    show_default="this folder",
    help="The course that `recovery-lab course create` made.",
)


@click.command("report")
@click.argument("unit", default="receiver")
@of_a_course
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    show_default="class-report.html in the course",
    help="The page to write.",
)
@click.option("--anonymous", is_flag=True, help="Leave out names, to show the page to others.")
def report(unit: str, course: Path, output: Path | None, anonymous: bool) -> None:
    """Write a page about the whole class: points, the rules that break most often, and where.

    Exit status: 0 it is written, 2 wrong usage, or nobody is graded yet.
    """
    chosen = find_unit(unit)
    course = course.resolve()
    path = output or course / "class-report.html"
    with ended_in_one_line("nothing written"), _refusals(path):
        from graders.course import class_report
        from graders.course.files import write

        write(path, class_report.page(course, chosen, anonymous=anonymous).encode("utf-8", "backslashreplace"))
    click.echo(f"written to {_shown(path)}")


@click.command("export")
@click.argument("unit", default="receiver")
@of_a_course
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "gradescope", "junit"]),
    required=True,
    help="One table, or for each student a results.json or an XML file.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The file to write for csv; for the others a new folder.",
)
def export(unit: str, course: Path, form: str, output: Path) -> NoReturn:
    """Write the results of a class for other programs. Nothing is judged.

    Exit status: 0 everybody's result is there, 1 somebody's is not, 2 wrong usage, or nobody is graded yet.
    """
    chosen = find_unit(unit)
    with ended_in_one_line("nothing written"), _refusals(output):
        from graders.course import exports
        from graders.course.results import of_class

        results = of_class(course.resolve(), chosen)
        if form == "csv":
            number = exports.write_csv(results, chosen, output)
        else:
            number = exports.write_folder(results, form, output)
    troubles = [(result.student, result.trouble) for result in results if result.trouble]
    for student, trouble in troubles:
        click.echo(f"{_shown(student)}: {trouble}", err=True)
    click.echo(f"written to {_shown(output)}: {number} {'student' if number == 1 else 'students'}")
    sys.exit(SOME_NOT if troubles else ALL_THERE)


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Whatever cannot be done is said in one line."""
    from graders.course.exports import CannotExport
    from graders.course.gradebook import NoCourse
    from graders.course.results import NobodyGraded
    from graders.course.secret import NoSecret

    try:
        yield
    except (NoCourse, NoSecret, NobodyGraded, CannotExport) as trouble:
        raise Refusal(_shown(str(trouble))) from None
    except OSError as error:
        raise Refusal(f"{_shown(error.filename or path)}: {error.strerror}") from None


def _shown(text: object) -> str:
    """On one line, and harmless for a terminal."""
    from graders.report.parts import visible

    return visible(str(text)).replace("\n", "\\n")
