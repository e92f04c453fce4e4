"""`recovery-lab replay`: make one run of an exploration again, and tell its story."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click

from lab.cli import Refusal
from lab.cli_check import ALL_PASS, SOME_FAIL, ended_in_one_line, find_unit, for_stream, refused_in_one_line


@click.command("replay")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("rule")
@click.argument("stops", nargs=-1, required=True)
@click.option("--unit", default="receiver", show_default=True, help="The unit that the file belongs to.")
@click.option("--seed", type=int, help="The seed of the verdict. [default: today's date]")
def replay(file: Path, rule: str, stops: tuple[str, ...], unit: str, seed: int | None) -> NoReturn:
    """End FILE at each of STOPS, in one life each, as the exploration of RULE has done, and tell what happens.

    A report names the rule and the stops. Exit status: 0 the promise is kept in this run, 1 it is broken, 2 wrong use.
    """
    from graders.engine.rules import NotMet
    from graders.engine.stops import stop_named
    from graders.judge import replay as replay_run
    from graders.report.text import replayed
    from graders.verdict import Outcome
    from lab.source import read

    try:
        with refused_in_one_line(), ended_in_one_line():
            crashes = [stop_named(stop) for stop in stops]
            finding = replay_run(read(file), rule, crashes, unit=find_unit(unit).name, seed=seed, sandbox="auto")
            click.echo(for_stream(replayed(finding), sys.stdout))
    except ValueError:
        raise Refusal("a stop looks like 117:line:1; copy the command from a report") from None
    except NotMet as stop:
        raise Refusal(f"the program does not come by {stop} any more; run check again") from None
    sys.exit(ALL_PASS if finding.outcome is Outcome.PASS else SOME_FAIL)
