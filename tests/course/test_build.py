"""The course checks itself: what learners get is what the sources generate, starters are unfinished, nothing stray."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner

from graders import registry
from graders.engine.rules import Step, Unit
from graders.engine.section_writer import SOLUTION_MARK, cell_body, is_starter, place
from graders.judge import judge
from graders.verdict import Outcome, Verdict
from lab import build

ROOT = build.ROOT
UNITS = registry.units()
STEPS = [pytest.param(unit, step, id=step.name) for unit in UNITS for step in unit.steps]


@pytest.fixture(scope="module")
def generated() -> Mapping[str, bytes]:
    """Path to content of everything that is generated, made now."""
    return {name: content for unit in UNITS for name, content in build.generate(ROOT, unit).items()}


def _cells(kind: str, unit: Unit, step: Step) -> list[Any]:
    path = ROOT / kind / unit.name / build.source_notebooks(ROOT, unit)[step.name].name
    return list(nbformat.read(path, as_version=4).cells)


def _starter(unit: Unit, step: Step) -> str:
    return cell_body(
        build.solution_cell(ROOT / "notebooks" / unit.name / f"{_number(unit, step)}_{step.name}.ipynb", step.name)
    )


def _number(unit: Unit, step: Step) -> str:
    return f"{[each.name for each in unit.steps].index(step.name) + 1:02}"


def test_everything_generated_is_exactly_what_the_sources_generate(generated: Mapping[str, bytes]) -> None:
    stale = [name for name, content in generated.items() if (ROOT / name).read_bytes() != content]
    assert stale == [], "run `recovery-lab build`"


def test_no_file_is_an_orphan(generated: Mapping[str, bytes]) -> None:
    sources = {f"solutions/{unit.name}/{path.name}" for unit in UNITS for path in _sources(unit)}
    pages = {f"solutions/{unit.name}.md" for unit in UNITS}
    found = {str(path.relative_to(ROOT)) for top in ("solutions", "notebooks") for path in _visible(ROOT / top)}
    assert found - pages == sources | set(generated)


def _sources(unit: Unit) -> list[Path]:
    return list(build.source_notebooks(ROOT, unit).values())


def _visible(folder: Path) -> list[Path]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in paths if not {".ipynb_checkpoints", "__pycache__"} & set(path.parts)]


@pytest.fixture(scope="module")
def judged() -> dict[str, Verdict]:
    """Unit to the verdict on a file that has every starter in it, as it is handed out."""
    return {unit.name: judge(_all_starters(unit), unit=unit.name) for unit in UNITS}


def _all_starters(unit: Unit) -> str:
    text = ""
    for step in unit.steps:
        text = place(text, step.name, _starter(unit, step), [each.name for each in unit.steps])
    return text


@pytest.mark.parametrize(("unit", "step"), STEPS)
def test_a_starter_is_a_program_and_unfinished(unit: Unit, step: Step) -> None:
    starter = _starter(unit, step)
    compile(starter, step.name, "exec")
    assert is_starter(starter) and "SOLUTION" not in starter


@pytest.mark.parametrize(("unit", "step"), STEPS)
def test_a_starter_defines_nearly_all_that_the_step_needs(unit: Unit, step: Step) -> None:
    """What is left to write is inside: names, arguments and docstrings are there, so that nobody guesses them."""
    given = {node.name: node for node in ast.parse(_starter(unit, step)).body if hasattr(node, "name")}
    assert set(step.public) <= set(given)
    assert all(ast.get_docstring(given[name]) for name in step.public if isinstance(given[name], ast.FunctionDef))


@pytest.mark.parametrize(("unit", "step"), STEPS)
def test_a_starter_gets_no_points_and_a_useful_word(judged: dict[str, Verdict], unit: Unit, step: Step) -> None:
    verdict = next(found for found in judged[unit.name].steps if found.step == step.name)
    assert verdict.outcome is Outcome.FAIL and verdict.score == 0
    message = next(rule.message for rule in verdict.rules if rule.outcome is Outcome.FAIL)
    assert "Expected:" in message and "Observed:" in message


@pytest.mark.parametrize(("unit", "step"), STEPS)
def test_a_solution_leaves_nothing_unwritten(unit: Unit, step: Step) -> None:
    body = cell_body(build.solution_cell(build.source_notebooks(ROOT, unit)[step.name], step.name))
    assert not is_starter(body)
    assert not any(SOLUTION_MARK.match(line) for line in body.split("\n"))


@pytest.mark.parametrize("kind", ["solutions", "notebooks"])
@pytest.mark.parametrize(("unit", "step"), STEPS)
def test_a_notebook_has_its_parts_in_order(unit: Unit, step: Step, kind: str) -> None:
    code = [cell.source for cell in _cells(kind, unit, step) if cell.cell_type == "code"]
    assert code[0] == "%load_ext lab"
    magics = [index for index, source in enumerate(code) if source.startswith(f"%%step {step.name}\n")]
    checks = [
        index for index, source in enumerate(code) if re.search(rf'^check\("{step.name}"\)$', source, re.MULTILINE)
    ]
    assert len(magics) == len(checks) == 1 and magics < checks


@pytest.mark.parametrize(("unit", "step"), STEPS)
def test_the_judge_and_the_notebook_agree_about_points(unit: Unit, step: Step) -> None:
    """nbgrader ends a student's autograding where a cell reports more points than it is worth."""
    tests = [
        cell.metadata.nbgrader
        for cell in _cells("notebooks", unit, step)
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade")
    ]
    assert [(found.grade_id, found.points) for found in tests] == [(step.name, step.max_score)]


@pytest.mark.parametrize(("unit", "step"), STEPS)
def test_a_released_notebook_is_clean(unit: Unit, step: Step) -> None:
    for cell in _cells("notebooks", unit, step):
        assert not cell.get("outputs") and not cell.get("execution_count")
        assert "BEGIN SOLUTION" not in cell.source and "END SOLUTION" not in cell.source


@pytest.mark.parametrize(("unit", "step"), STEPS)
def test_a_solution_keeps_the_outputs_of_a_run_with_all_points(unit: Unit, step: Step) -> None:
    """Who studies alone reads them; `recovery-lab build --execute` makes them anew."""
    outputs = {cell.id: cell.outputs for cell in _cells("solutions", unit, step) if cell.cell_type == "code"}
    report, points = outputs[f"{step.name}-test"]
    assert step.name in report.data["text/plain"] and "text/html" in report.data
    assert points.data["text/plain"] == format(step.max_score, "g")
    assert not any(output.output_type == "error" for kept in outputs.values() for output in kept)


def test_grade_ids_are_unique_in_a_unit() -> None:
    for unit in UNITS:
        ids = [
            cell.metadata.nbgrader.grade_id
            for step in unit.steps
            for cell in _cells("notebooks", unit, step)
            if "nbgrader" in cell.metadata
        ]
        assert len(ids) == len(set(ids)) > 0


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of everything that a build reads and writes; the command works there."""
    for name in ("solutions", "notebooks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns(".*"))
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    return tmp_path


def test_check_names_what_is_stale_and_changes_nothing_and_build_mends_it(course: Path) -> None:
    unit = UNITS[0]
    first = f"notebooks/{unit.name}/01_{unit.steps[0].name}.ipynb"
    (course / first).write_text("{}")
    (course / "notebooks" / unit.name / "stray.txt").write_text("stray")
    file = course / "solutions" / unit.file_name
    file.write_text(file.read_text().replace("# %% ", "# %%  ", 1))
    checked = CliRunner().invoke(build.build, ["--check"])
    expected = [f"solutions/{unit.file_name}", first, f"notebooks/{unit.name}/stray.txt"]
    assert (checked.exit_code, checked.output.splitlines()) == (1, [f"stale: {name}" for name in expected])
    assert (course / first).read_text() == "{}"
    built = CliRunner().invoke(build.build, [])
    assert (built.exit_code, built.output.splitlines()) == (0, [f"written: {name}" for name in expected])
    for name in expected[:2]:
        assert (course / name).read_bytes() == (ROOT / name).read_bytes()
    assert not (course / expected[2]).exists()


def _one_missing(folder: Path) -> None:
    next(iter(sorted(folder.iterdir()))).unlink()


def _one_number_twice(folder: Path) -> None:
    first, second = sorted(folder.iterdir())[:2]
    second.rename(folder / (first.name[:2] + second.name[2:]))


def _one_too_many(folder: Path) -> None:
    (folder / "99_more.ipynb").write_text("{}")


def _another_step(folder: Path) -> None:
    first = sorted(folder.iterdir())[0]
    first.write_text(first.read_text().replace("%%step ", "%%step x"))


def _not_json(folder: Path) -> None:
    sorted(folder.iterdir())[0].write_text("{")


@pytest.mark.parametrize("harm", [_one_missing, _one_number_twice, _one_too_many, _another_step, _not_json])
def test_sources_that_do_not_fit_together_are_one_line(course: Path, harm: Any) -> None:
    before = {path: path.read_bytes() for path in (course / "notebooks").rglob("*.ipynb")}
    harm(course / "solutions" / UNITS[0].name)
    done = CliRunner().invoke(build.build, [])
    assert done.exit_code == 1 and done.output.startswith("Error: ") and ".ipynb" in done.output
    assert len(done.output.splitlines()) == 1
    assert {path: path.read_bytes() for path in (course / "notebooks").rglob("*.ipynb")} == before


def test_check_and_execute_exclude_each_other() -> None:
    assert CliRunner().invoke(build.build, ["--check", "--execute"]).exit_code == 2


def _small_unit(folder: Path, *code: str) -> Unit:
    """A unit of one notebook, which has the picture that every notebook has and these code cells."""
    first = UNITS[0].steps[0]
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_markdown_cell("![words](old)", id=f"{first.name}-picture")]
    notebook.cells += [nbformat.v4.new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(code)]
    (folder / "solutions" / "small").mkdir(parents=True)
    nbformat.write(notebook, folder / "solutions" / "small" / f"01_{first.name}.ipynb")
    return Unit("small", "small.py", (first,), ("peer", "program", "store"), folder / "solutions" / "small.py")


def test_executing_keeps_outputs_and_gives_the_same_bytes_each_time(tmp_path: Path) -> None:
    unit = _small_unit(tmp_path, "import lab\nprint('seen')\nprint('twice')", "6 * 7")
    path = build.source_notebooks(tmp_path, unit)[unit.steps[0].name]
    build.execute_notebooks(tmp_path, unit)
    once = path.read_bytes()
    picture, first, second = nbformat.read(path, as_version=4).cells
    assert [output.text for output in first.outputs] == ["seen\ntwice\n"]
    assert second.outputs[0].data["text/plain"] == "42"
    assert "data:image/svg+xml;base64," in picture.source
    build.execute_notebooks(tmp_path, unit)
    assert path.read_bytes() == once


@pytest.mark.parametrize(
    ("code", "said"), [("1 / 0", "ZeroDivisionError"), ("import sys; print('x', file=sys.stderr)", "standard error")]
)
def test_a_solution_that_fails_or_complains_is_not_kept(tmp_path: Path, code: str, said: str) -> None:
    unit = _small_unit(tmp_path, code)
    path = build.source_notebooks(tmp_path, unit)[unit.steps[0].name]
    before = path.read_bytes()
    with pytest.raises(build.BuildError, match=said):
        build.execute_notebooks(tmp_path, unit)
    assert path.read_bytes() == before
