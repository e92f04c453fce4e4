"""`recovery-lab check`: judge a file, print the report, and say what came of it in the exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from lab.cli import Refusal

if TYPE_CHECKING:
    from graders.engine.processes import Method
    from graders.engine.rules import Unit
    from graders.engine.sandbox import Mode
    from graders.report.text import Paint
    from graders.verdict import Verdict

ALL_PASS, SOME_FAIL, COULD_NOT_TELL = 0, 1, 3  # 2 is click's and Refusal's: wrong usage, no file
FORMATS = {"text": "text", "json": "as_json", "junit": "junit", "gradescope": "gradescope"}
WIDEST = 100  # columns; longer lines are hard to read
COLOURS: dict[str, dict[str, Any]] = {
    "pass": {"fg": "green"},
    "fail": {"fg": "red", "bold": True},
    "error": {"fg": "magenta", "bold": True},
    "skipped": {"dim": True},
    "strong": {"bold": True},
    "faint": {"dim": True},
}


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--unit", default="receiver", show_default=True, help="The unit that the file belongs to.")
@click.option("--step", "steps", multiple=True, help="Judge this step only; may be given several times.")
@click.option("--seed", type=int, help="The same file and seed give the same verdict. [default: today's date]")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), default="text", show_default=True, help="How to report."
)
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "require", "off"]),
    default="auto",
    show_default=True,
    help="Whether to shut the program in: always, where that is possible, or never.",
)
@click.option("--thorough", is_flag=True, help="Explore recoveries at each instruction, and sessions that end early.")
@click.option("--method", type=click.Choice(["fork", "spawn"]), hidden=True, help="How children are started.")
def check(
    file: Path,
    unit: str,
    steps: tuple[str, ...],
    seed: int | None,
    form: str,
    sandbox: Mode,
    thorough: bool,
    method: Method | None,
) -> NoReturn:
    """Judge FILE and report what it keeps and what it breaks.

    Exit status: 0 all rules pass, 1 some rule fails, 2 wrong usage or no such file, 3 the judge could not tell.
    """
    with ended_in_one_line():
        chosen = find_unit(unit)
        wanted = _find_steps(chosen, steps)
        verdict = _judge(file, chosen, wanted, seed, method, thorough, sandbox)
        _write(_render(verdict, form, str(file)))
    sys.exit(COULD_NOT_TELL if verdict.broken else ALL_PASS if verdict.passed else SOME_FAIL)


@contextlib.contextmanager
def refused_in_one_line() -> Iterator[None]:
    """A file that cannot be judged, and a name that the judge does not know."""
    from graders.report.parts import visible
    from lab.source import CannotRead, NotText

    try:
        yield
    except (CannotRead, NotText) as trouble:
        raise Refusal(visible(str(trouble))) from None
    except KeyError as unknown:
        raise Refusal(visible(str(unknown.args[0]))) from None


def find_unit(name: str) -> Unit:
    from graders import registry

    known = {unit.name: unit for unit in registry.units()}
    return known[name] if name in known else _refuse("unit", name, list(known))


def _find_steps(unit: Unit, names: Sequence[str]) -> list[str] | None:
    known = [step.name for step in unit.steps]
    for name in names:
        if name not in known:
            _refuse("step", name, known)
    return list(names) or None


def _refuse(what: str, name: str, known: Sequence[str]) -> NoReturn:
    import difflib

    from graders.report.parts import shorten, visible

    close = difflib.get_close_matches(name, known, n=1)
    help_ = f"did you mean {close[0]}?" if close else f"there is {', '.join(known)}"
    raise Refusal(f"no {what} is called {visible(shorten(name, 80))!r}; {help_}")


def _judge(
    file: Path,
    unit: Unit,
    steps: list[str] | None,
    seed: int | None,
    method: Method | None,
    thorough: bool,
    sandbox: Mode,
) -> Verdict:
    from graders.engine.sandbox import NoSandbox
    from graders.judge import could_not_judge, judge, todays_seed, unreadable_file
    from graders.report.parts import visible
    from lab.source import CannotRead, NotText, read

    seed = todays_seed() if seed is None else seed
    try:
        # The unit's own name and not the file's: a file called `random.py` must not get in anybody's way.
        source = read(file)
        with _progress() as progress:
            return judge(
                source,
                unit=unit.name,
                steps=steps,
                seed=seed,
                method=method,
                progress=progress,
                thorough=thorough,
                sandbox=sandbox,
            )
    except CannotRead as trouble:
        raise Refusal(visible(str(trouble))) from None
    except NoSandbox as trouble:
        raise Refusal(str(trouble)) from None
    except NotText as seen:
        return unreadable_file(seen.observed, seen.cause, unit=unit.name, name=unit.file_name, steps=steps, seed=seed)
    except Exception as error:
        click.echo(f"recovery-lab: the judge broke: {type(error).__name__}: {error}", err=True)
        return could_not_judge(error, unit=unit.name, steps=steps, seed=seed)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """On a terminal, one line that says where the judge is, and that is gone when the report comes."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(step: str, done: int, rules: int) -> None:
        sys.stderr.write(f"\r\x1b[K{step}: {done} of {rules} rules")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _render(verdict: Verdict, form: str, file: str) -> str:
    import importlib
    import shutil

    if form != "text":
        report: str = importlib.import_module(f"graders.report.{FORMATS[form]}").render(verdict)
        return report
    from graders.report import text

    if not sys.stdout.isatty():
        return text.render(verdict, file=file)
    return text.render(verdict, file=file, width=min(shutil.get_terminal_size().columns, WIDEST), paint=painter())


def painter() -> Paint:
    """Colours for a terminal that shows them, else plain text."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return lambda _, words: words
    return lambda kind, words: click.style(words, **COLOURS[kind])


def _write(report: str) -> None:
    try:
        click.echo(for_stream(report, sys.stdout))
    except BrokenPipeError:
        raise  # click ends quietly: the reader has seen enough
    except OSError as error:
        click.echo(f"recovery-lab: the report cannot be written: {error.strerror}", err=True)
        sys.stdout = None  # the interpreter would try again to flush it
        sys.exit(COULD_NOT_TELL)


def for_stream(text: str, stream: TextIO) -> str:
    """The text with what the stream's encoding does not have replaced by something like it."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
        return text
    except UnicodeEncodeError:
        alike = text.translate({ord("│"): "|", ord("…"): "..."})
        return alike.encode(encoding, "backslashreplace").decode(encoding)


class _Ended(BaseException):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def ended_in_one_line(then: str = "nothing judged") -> Iterator[None]:
    """Ctrl-C, and a polite request to end, leave one line and nothing running. `then` says what became of the work."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are another thread's business
        return
    every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in every if signal.getsignal(number) is not signal.SIG_IGN]  # nohup means it

    def end(number: int, frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)  # a second one must not cut the clearing-up short
        raise _Ended(number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    except _Ended as ended:
        click.echo(f"recovery-lab: ended by {signal.Signals(ended.number).name}, {then}", err=True)
        sys.exit(128 + ended.number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
