"""`recovery-lab build`: what learners get, generated from the solution notebooks.

`notebooks/<unit>/` is nbgrader's own release of `solutions/<unit>/`, and `solutions/<file>` is the solution cells one
after the other. Both are functions of the solution notebooks alone: the same sources give the same bytes.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import nbformat

from graders import registry
from graders.engine.rules import Unit
from graders.engine.section_writer import MAGIC, cell_body, chunks, place
from lab import learner_file

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK_NAME = re.compile(r"(?P<number>\d\d)_(?P<step>\w+)\.ipynb")
CELL_TIME = 120  # seconds for one cell of a solution notebook
NBGRADER_TIME = 300  # seconds for the whole release, which takes five
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class BuildError(Exception):
    """The sources do not fit together; the message says which and how."""


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; name every stale file and exit with 1 if there is one.")
@click.option("--execute", is_flag=True, help="First run the solution notebooks and keep their outputs in them.")
def build(check: bool, execute: bool) -> None:
    """Generate what learners get, and the reference files, from the solution notebooks."""
    if check and execute:
        raise click.UsageError("--check changes nothing, so it cannot go with --execute")
    try:
        stale = [name for unit in registry.units() for name in _build_unit(ROOT, unit, check, execute)]
    except (BuildError, learner_file.FileTrouble) as error:
        raise click.ClickException(str(error)) from error
    for name in stale:
        click.echo(f"{'stale' if check else 'written'}: {name}")
    if not stale:
        click.echo("everything is up to date")
    if check and stale:
        raise SystemExit(1)


def _build_unit(root: Path, unit: Unit, check: bool, execute: bool) -> list[str]:
    """Generate one unit; returns the names of the files that were, or with `check` are, not what they should be."""
    if execute:
        execute_notebooks(root, unit)
    made = generate(root, unit)
    stale = [name for name, content in made.items() if _bytes(root / name) != content]
    orphans = sorted(name for name in _released(root, unit) if name not in made)
    if not check:
        for name in stale:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            learner_file.write(root / name, made[name].decode())
        for name in orphans:
            (root / name).unlink()
    return stale + orphans


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _released(root: Path, unit: Unit) -> Iterator[str]:
    """Every file in the unit's release, hidden folders left out."""
    folder = root / "notebooks" / unit.name
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield str(path.relative_to(root))


def generate(root: Path, unit: Unit) -> Mapping[str, bytes]:
    """Everything that is generated for `unit`: path below `root` to content."""
    sources = source_notebooks(root, unit)
    reference = root / "solutions" / unit.file_name
    made = {str(reference.relative_to(root)): assemble(learner_file.read(reference), sources, unit).encode()}
    with tempfile.TemporaryDirectory(prefix="recovery-lab-build-") as folder:
        for path in _release(root, Path(folder), unit):
            notebook = _read(path)
            made[f"notebooks/{unit.name}/{path.name}"] = _text(notebook).encode()
    return made


def source_notebooks(root: Path, unit: Unit) -> dict[str, Path]:
    """Step to solution notebook, in order. BuildError where notebooks and steps are not one to one."""
    folder = root / "solutions" / unit.name
    found = sorted(path for path in folder.glob("*") if path.suffix == ".ipynb")
    expected = [f"{number:02}_{step.name}.ipynb" for number, step in enumerate(unit.steps, start=1)]
    if [path.name for path in found] != expected:
        odd = sorted({path.name for path in found} ^ set(expected))
        raise BuildError(
            f"{folder}: notebooks and steps differ at {', '.join(odd)}; the number is the order of the steps"
        )
    return dict(zip((step.name for step in unit.steps), found, strict=True))


def assemble(reference: str, sources: Mapping[str, Path], unit: Unit) -> str:
    """The reference file: its own preamble, then the body of every solution cell as that step's section."""
    names = [step.name for step in unit.steps]
    preamble = "".join(line for chunk in chunks(reference, names) if chunk.owner == "" for line in chunk.lines)
    text = ""
    for step, path in sources.items():
        text = place(text, step, cell_body(solution_cell(path, step)), names)
    return f"{preamble.rstrip()}\n\n{text}"


def solution_cell(path: Path, step: str) -> str:
    """The source of the one cell of a notebook that starts with `%%step`."""
    cells = [cell.source for cell in _read(path).cells if cell.cell_type == "code"]
    steps = [(match["step"], source) for source in cells if (match := MAGIC.match(source))]
    if [name for name, _ in steps] != [step]:
        raise BuildError(f"{path}: exactly one cell must start with `%%step {step}`, not {[name for name, _ in steps]}")
    return str(steps[0][1])


def _release(root: Path, folder: Path, unit: Unit) -> list[Path]:
    """Run nbgrader's generate_assignment in `folder`, on a copy of this course; returns the released notebooks."""
    shutil.copy(root / "nbgrader_config.py", folder)
    shutil.copytree(root / "solutions" / unit.name, folder / "solutions" / unit.name)
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])  # it runs alembic
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_assignment", unit.name],
        cwd=folder,
        env={**os.environ, "PATH": path, "JUPYTER_NO_CONFIG": "1", "JUPYTER_CONFIG_DIR": str(folder / "no-config")},
        capture_output=True,
        text=True,
        timeout=NBGRADER_TIME,
    )
    if done.returncode != 0:
        raise BuildError(f"nbgrader refuses {unit.name}:\n{done.stdout}{done.stderr}")
    return sorted((folder / "notebooks" / unit.name).glob("*.ipynb"))


def _read(path: Path) -> Any:
    """A notebook as nbformat nodes."""
    try:
        return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise BuildError(f"{path} is not a notebook: {error}") from error


def _text(notebook: Any) -> str:
    """A notebook as it is stored: one kernel for all, whatever machine it was edited or run on."""
    notebook.metadata = nbformat.from_dict(METADATA)  # type: ignore[no-untyped-call]
    stream = io.StringIO()
    nbformat.write(notebook, stream)  # type: ignore[no-untyped-call]
    return stream.getvalue()


def execute_notebooks(root: Path, unit: Unit) -> None:
    """Run every solution notebook in order, in one folder as a learner does, and keep outputs and fresh pictures."""
    with tempfile.TemporaryDirectory(prefix="recovery-lab-run-") as folder:
        for step, path in source_notebooks(root, unit).items():
            notebook = _read(path)
            _refresh_picture(notebook, step)
            _execute(notebook, path, Path(folder))
            learner_file.write(path, _text(notebook))
            click.echo(f"executed: {path.relative_to(root)}")


def _refresh_picture(notebook: Any, step: str) -> None:
    if importlib.util.find_spec("lab.pictures") is not None:
        from lab import pictures

        pictures.refresh(notebook, step)


def _execute(notebook: Any, path: Path, folder: Path) -> None:
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    client = NotebookClient(
        notebook,
        timeout=CELL_TIME,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    try:
        client.execute(env={**os.environ, "PYTHONPATH": search, "RECOVERY_LAB_AUTO_CHECK": "off"})
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise BuildError(f"{path}: {error}") from error
    for cell in notebook.cells:
        if any(output.get("name") == "stderr" for output in cell.get("outputs", [])):
            raise BuildError(f"{path}: the cell {cell.id} writes to standard error, which nbgrader reads as no points")
