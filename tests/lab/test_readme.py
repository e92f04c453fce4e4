"""What README.md and CONTRIBUTING.md say is so: commands, tables, the picture, the verdict, and links."""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import corpus
import nbformat
import pytest
from click import Command
from packaging.requirements import Requirement
from starts import ROOT

from graders.judge import judge
from graders.registry import unit
from graders.report import text
from graders.verdict import Exploration
from lab import pictures
from lab.cli import VERBS, main

PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "solutions/receiver.md")
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECEIVER = unit("receiver")
EXAMPLE = "atomic_apply/cursor_after_commit"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language on a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """Every command line in the shell blocks of all pages, as words."""
    pages = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    lines = [line for page in pages for block in blocks(page, "sh") for line in block.splitlines()]
    every = [part for line in lines for part in line.split("#")[0].split(" && ")]
    return [shlex.split(command) for command in every if command.strip()]


def of_the_lab() -> list[list[str]]:
    """What follows `recovery-lab` or `python3 -m lab`."""
    found = [line[1:] for line in commands() if line[0] == "recovery-lab"]
    return found + [line[3:] for line in commands() if line[:3] == ["python3", "-m", "lab"]]


@pytest.mark.parametrize("words", of_the_lab(), ids=" ".join)
def test_a_command_of_the_lab_is_one(words: list[str]) -> None:
    verb = words[0] if words and words[0] in VERBS else "open"
    command = main.get_command(main.make_context("recovery-lab", ["--help"], resilient_parsing=True), verb)
    assert isinstance(command, Command)
    command.make_context(verb, words[1:] if words and words[0] in VERBS else list(words))


def test_the_two_commands_come_first() -> None:
    assert [line.split("#")[0].strip() for line in blocks(README, "sh")[0].splitlines()] == [
        "python3 -m lab",
        "python3 -m lab test",
    ]


def test_every_other_command_is_known() -> None:
    from nbgrader.apps.nbgraderapp import NbGraderApp

    subcommands = {line[1] for line in commands() if line[0] == "nbgrader"}
    assert subcommands and subcommands <= set(NbGraderApp.subcommands)
    others = {line[0] for line in commands()} - {"recovery-lab", "nbgrader"}
    assert others <= {"python3", "python", "pip", "conda", "jupyter", ".", "ruff", "mypy", "git"}


@pytest.mark.parametrize("words", [line for line in commands() if line[0] == "python"], ids=" ".join)
def test_a_file_that_python_is_to_run_is_there(words: list[str]) -> None:
    assert [word for word in words if word.endswith(".py") and not (ROOT / word).is_file()] == []


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table after a heading, without its head."""
    after = page[page.index(f"\n## {heading}\n") :]
    table = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


def points_in_words(notebook: str) -> float:
    cells = nbformat.read(ROOT / "solutions" / "receiver" / notebook, as_version=4).cells
    graded = [cell.metadata.get("nbgrader", {}) for cell in cells]
    return sum(mark["points"] for mark in graded if mark.get("grade") and mark.get("solution"))


def test_the_table_of_steps_is_the_registry() -> None:
    expected, words = [], 0.0
    for number, step in enumerate(RECEIVER.steps, start=1):
        notebook = f"{number:02}_{step.name}.ipynb"
        words += points_in_words(notebook)
        expected.append(
            [
                str(number),
                f"`{step.name}`",
                f"[{notebook}](notebooks/receiver/{notebook})",
                f"[{step.name}.py](graders/receiver/{step.name}.py)",
                f"[{step.name}/](tests/wrong/receiver/{step.name})",
                f"{step.max_score:g} + {points_in_words(notebook):g}",
            ]
        )
    assert rows(README, "Where is step N") == expected
    assert f"({sum(step.max_score for step in RECEIVER.steps):g} points in all)" in README
    assert f"({words:g} points)" in README


def test_the_picture_is_what_the_drawing_code_draws() -> None:
    """`python -c "from lab import pictures; print(pictures.for_step('reconnect'), end='')" > docs/reconnect.svg`"""
    assert (ROOT / "docs" / "reconnect.svg").read_text(encoding="utf-8") == pictures.for_step("reconnect")


def test_the_verdict_is_what_the_judge_says() -> None:
    (program,) = [program for program in corpus.wrong_programs("receiver") if str(program) == EXAMPLE]
    assert f"tests/wrong/receiver/{EXAMPLE}.toml" in README
    verdict = judge(program.source(corpus.reference("receiver")), steps=[program.step], seed=7)
    (excerpt,) = blocks(README, "text")
    assert text.render(replace(verdict, exploration=Exploration())).startswith(excerpt)


def test_the_formats_are_those_of_the_command() -> None:
    command = main.get_command(main.make_context("recovery-lab", ["--help"], resilient_parsing=True), "check")
    assert command is not None
    (form,) = [option for option in command.params if option.name == "form"]
    assert all(f"`{name}`" in README or f"--format {name}" in README for name in form.type.choices)


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    named = [name.split()[0] for row in rows(README, "Dependencies, and why") for name in row[0].split(", ")]
    assert sorted(named) == sorted(Requirement(line).name for line in asked)


def test_the_map_has_every_module() -> None:
    """A step's own module aside: nothing lists steps."""
    named = {
        f"{folder}/{name}"
        for folder in ("lab", "graders")
        for table in re.findall(rf"^\| `{folder}/` .*\n(?:\|.*\n)+", CONTRIBUTING, re.MULTILINE)
        for name in re.findall(r"`([\w/]+\.(?:py|toml))`", table)
    }
    steps = {f"graders/receiver/{step.name}.py" for step in RECEIVER.steps}
    modules = {str(path.relative_to(ROOT)) for folder in ("lab", "graders") for path in (ROOT / folder).rglob("*.py")}
    expected = {name for name in modules if not name.endswith("__init__.py")} - steps
    assert {name for name in named if name.endswith(".py")} == expected
    assert all((ROOT / name).is_file() for name in named)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    path = ROOT / page
    targets = re.findall(r"\]\((?!https://|#)([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not Path(path.parent, target).exists()] == []
