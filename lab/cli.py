"""The `recovery-lab` command. `python3 -m lab` takes the same verbs, once the environment is there.

A verb's module is imported when the verb is used. To add a verb, name its module and its click command in `VERBS`.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from lab.bootstrap import ROOT

VERBS = {
    "open": "lab.cli:open_lab",
    "test": "lab.cli:test",
    "check": "lab.cli_check:check",
    "watch": "lab.cli_watch:watch",
    "replay": "lab.cli_replay:replay",
    "map": "lab.cli_map:crash_map",
    "build": "lab.build:build",
    "course": "lab.cli_course:course",
    "grade": "lab.cli_grade:grade",
    "report": "lab.cli_report:report",
    "export": "lab.cli_report:export",
}


class Verbs(click.Group):
    """A group whose commands are imported when asked for, and in which no verb means `open`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, name = VERBS[cmd_name].split(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command), VERBS[cmd_name]
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
            args = ["open", *args]
        return super().parse_args(ctx, args)


class Refusal(click.ClickException):
    """The user is told in one line what is wrong and what to do."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        click.echo(f"recovery-lab: {self.message}", err=True)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="recovery-lab")
def main() -> None:
    """Recovery Lab: write a receiver that survives being ended at any moment. Without a verb: open."""


@click.command("open")
@click.option(
    "--workspace",
    type=click.Path(path_type=Path),
    default=Path(ROOT, "workspace"),
    show_default="workspace/ in the repository",
    help="The folder you work in. Your own work there is never overwritten.",
)
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the local server. [default: the first free one]")
@click.option("--browser/--no-browser", default=True, help="Open a browser, or only print the address.")
def open_lab(workspace: Path, port: int | None, browser: bool) -> None:
    """Bring your workspace up to date and open JupyterLab on it."""
    from lab import jupyter
    from lab.workspace import WorkspaceError, first_notebook, refresh

    release = Path(ROOT, "notebooks")
    try:
        if port:
            jupyter.check_port(port)
        for line in refresh(release, workspace):
            click.echo(line)
    except (WorkspaceError, jupyter.PortTaken) as problem:
        raise Refusal(str(problem)) from problem
    jupyter.serve(workspace.resolve(), first_notebook(release), port, browser)


@click.command("test", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def test(arguments: tuple[str, ...]) -> NoReturn:
    """Run the project's test suite; further arguments go to pytest."""
    # Every core, unless the arguments say how many.
    parallel = [] if any(argument.startswith(("-n", "--numprocesses")) for argument in arguments) else ["-n", "auto"]
    sys.stdout.flush()
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *parallel, *arguments])


if __name__ == "__main__":
    main(prog_name="recovery-lab")
