"""The learner's own copy of the notebooks, and how a new release reaches it without touching what the learner did.

A workspace is a folder with a folder per unit. What was put there is noted in `.recovery-lab/released.json`. A notebook
counts as changed when the text of its cells is no longer what was put there: running cells and saving changes the file,
but is no work to lose. A changed notebook stays as it is, and a newer release comes beside it (`01_framing.new.ipynb`).

Every write is a whole file put in place at once, and the note is written last. Cut off anywhere, the next start finds
each file either old or new, recognises the new ones by their text, and goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graders.engine.rules import Unit
from graders.engine.section_writer import cell_body
from lab.bootstrap import ROOT

OURS = ".recovery-lab"
UNFINISHED = ".recovery-lab-unfinished-"
PARTS_OF_THE_REPOSITORY = (".ci", ".git", ".venv", "benchmarks", "graders", "lab", "notebooks", "solutions", "tests")


class WorkspaceError(Exception):
    """Why a folder cannot be the workspace, and what to do about it, in one line."""


@dataclass
class Released:
    """What a learner was given under one name: the release's bytes, its cells, and new releases put beside it."""

    release: str
    cells: str
    beside: dict[str, str] = field(default_factory=dict)


def refresh(release: Path, workspace: Path) -> list[str]:
    """Bring `workspace` up to date with the notebooks in `release`; returns what there is to say, a line each.

    Raises WorkspaceError where that cannot be done.
    """
    workspace = usable(workspace, release.parent)
    files = released_files(release)
    if not files:
        raise WorkspaceError(f"there are no notebooks in {release}: `recovery-lab build` makes them")
    try:
        with only_one(workspace):
            return bring(release, workspace, files)
    except OSError as error:
        reason = f"{error.strerror or error}: {error.filename or workspace}"
        raise WorkspaceError(
            f"cannot write the workspace ({reason}): choose another one with --workspace DIR"
        ) from error


def usable(workspace: Path, root: Path) -> Path:
    """The folder that `workspace` really is. Raises WorkspaceError for what cannot or should not be one."""
    where = workspace.resolve()
    if workspace.is_symlink() and not where.exists():
        raise WorkspaceError(
            f"{workspace} is a link to {where}, which is not there: choose another with --workspace DIR"
        )
    if where.exists() and not where.is_dir():
        raise WorkspaceError(f"{workspace} is a file, not a folder: choose another workspace with --workspace DIR")
    root = root.resolve()
    if where == root or any(where.is_relative_to(root / part) for part in PARTS_OF_THE_REPOSITORY):
        raise WorkspaceError(f"{workspace} belongs to the lab itself: choose another workspace with --workspace DIR")
    return where


def released_files(release: Path) -> list[str]:
    """Relative names of what learners get. Never a Python file: those are theirs to write."""
    return sorted(
        path.relative_to(release).as_posix()
        for path in release.glob("*/**/*")
        if path.is_file() and path.suffix != ".py" and not any(part.startswith((".", "__")) for part in path.parts[-2:])
    )


def first_notebook(release: Path, unit: str = "receiver") -> str:
    """Relative name of the notebook to start with."""
    notebooks = [name for name in released_files(release) if name.endswith(".ipynb")]
    return next((name for name in notebooks if name.startswith(f"{unit}/")), notebooks[0])


def starter_of(unit: Unit, step: str) -> str:
    """The code that learners are given for a step, as the release has it."""
    for path in sorted(Path(ROOT, "notebooks", unit.name).glob(f"*_{step}.ipynb")):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            source = "".join(cell["source"])
            if source.startswith(f"%%step {step}"):
                return cell_body(source)
    raise KeyError(f"the release has no starter for {step}")


def bring(release: Path, workspace: Path, files: list[str]) -> list[str]:
    known, said = read_notes(workspace), []
    clear_unfinished({workspace / OURS, *((workspace / name).parent for name in files)})
    first_time = not known
    for name in files:
        line, known[name] = bring_one(release / name, workspace / name, known.get(name))
        if line and not (first_time and line.startswith("new:")):
            said.append(line)
    write_notes(workspace, known)
    return [f"{len(files)} files put into {workspace}", *said] if first_time else said


def bring_one(release: Path, target: Path, known: Released | None) -> tuple[str, Released]:
    """Update one file of the workspace; returns what to say (or "") and what to note about it."""
    content = release.read_bytes()
    now = Released(digest(content), cells_of(release))
    name = f"{target.parent.name}/{target.name}"
    if not os.path.lexists(target):
        put(target, content)
        return f"new: {name}", now
    theirs = cells_of(target) if target.is_file() and not target.is_symlink() else "not a plain file"
    known = known or Released("", "")
    now.beside = known.beside
    if theirs in (known.cells, *known.beside.values()) and known.release != now.release:
        put(target, content)
        return f"updated: {name}", now
    if theirs == now.cells:
        return "", now
    if known.release == now.release:
        return "", known
    return put_beside(target, content, now, known)


def put_beside(target: Path, content: bytes, now: Released, known: Released) -> tuple[str, Released]:
    """Leave a changed file alone and put the new release next to it, under a name nobody has worked in."""
    for number in range(1, 1000):
        other = target.with_name(f"{target.stem}.new{number if number > 1 else ''}{target.suffix}")
        there = cells_of(other) if other.is_file() and not other.is_symlink() else None
        if not os.path.lexists(other) or (there is not None and there in (now.cells, known.beside.get(other.name))):
            break
    if there != now.cells:
        put(other, content)
    line = f"kept: your {target.parent.name}/{target.name}; its new release is beside it, in {other.name}"
    return line, Released(now.release, known.cells, {**known.beside, other.name: now.cells})


# ------------------------------------------------------------------------------------------------- what a file says


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def cells_of(path: Path) -> str:
    """Fingerprint of what a person can have worked on in a file: a notebook's cells, or all of another file.

    Outputs, execution counts and what JupyterLab itself notes in a notebook are left out, and so are the empty cells
    that it adds at the end when the last one is run.
    """
    content = path.read_bytes()
    if path.suffix != ".ipynb":
        return digest(content)
    try:
        cells = [essence(cell) for cell in json.loads(content)["cells"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return digest(content)
    while cells and cells[-1] == ["code", "", None]:
        cells.pop()
    return digest(json.dumps(cells, sort_keys=True).encode())


def essence(cell: dict[str, Any]) -> list[Any]:
    """A cell's kind, text, and what nbgrader keeps about it."""
    source = cell["source"]
    return [cell["cell_type"], "".join(source), cell.get("metadata", {}).get("nbgrader")]


# ------------------------------------------------------------------------------------------------ writing things down


@contextlib.contextmanager
def only_one(workspace: Path) -> Iterator[None]:
    """Two starts at once update one workspace one after the other."""
    (workspace / OURS).mkdir(parents=True, exist_ok=True)
    lock = os.open(workspace / OURS / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def clear_unfinished(folders: set[Path]) -> None:
    """Remove what a start that was cut off had begun to write."""
    for folder in folders:
        for unfinished in folder.glob(f"{UNFINISHED}*"):
            unfinished.unlink()


def put(target: Path, content: bytes) -> None:
    """Write a file so that its name has either all of the old content or all of the new."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(UNFINISHED + target.name)
    with open(unfinished, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, target)


def read_notes(workspace: Path) -> dict[str, Released]:
    """What was put into the workspace so far. Lost or damaged notes only make a start more careful."""
    try:
        files = json.loads((workspace / OURS / "released.json").read_bytes())["files"]
        return {name: Released(**note) for name, note in files.items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_notes(workspace: Path, known: dict[str, Released]) -> None:
    notes = {"files": {name: vars(note) for name, note in sorted(known.items())}}
    put(workspace / OURS / "released.json", (json.dumps(notes, indent=1) + "\n").encode())
