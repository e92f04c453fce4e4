"""The learner's workspace: new releases reach it, and nothing that a learner did is ever overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starts import DEADLINE, ROOT, as_ordinary_user

from lab.workspace import WorkspaceError, first_notebook, refresh

FIRST, SECOND = "receiver/01_framing.ipynb", "receiver/02_store.ipynb"
NEW = "receiver/01_framing.new.ipynb"


def notebook(*sources: str, **metadata: Any) -> dict[str, Any]:
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"c{number}",
            "metadata": {},
            "outputs": [],
            "source": text,
        }
        for number, text in enumerate(sources)
    ]
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def sources(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_bytes())["cells"]]


class Course:
    """A release and a workspace in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.release, self.workspace = folder / "repository" / "notebooks", folder / "work"
        write(self.release / FIRST, notebook("first", "write here"))
        write(self.release / SECOND, notebook("second"))

    def refresh(self) -> list[str]:
        return refresh(self.release, self.workspace)

    def release_again(self, name: str = FIRST, text: str = "better") -> None:
        write(self.release / name, notebook(text, "write here"))

    def learner_writes(self, text: str = "my answer", name: str = FIRST) -> None:
        write(self.workspace / name, notebook("first", text))

    def files(self) -> dict[str, bytes]:
        """What is in the workspace, without the lab's own notes."""
        return {
            path.relative_to(self.workspace).as_posix(): path.read_bytes()
            for path in self.workspace.rglob("*")
            if path.is_file() and ".recovery-lab" not in path.relative_to(self.workspace).parts
        }


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return Course(tmp_path)


def test_the_first_time_everything_is_put_there(course: Course) -> None:
    assert course.refresh() == [f"2 files put into {course.workspace}"]
    assert course.files() == {name: (course.release / name).read_bytes() for name in (FIRST, SECOND)}


def test_the_second_time_there_is_nothing_to_do_or_say(course: Course) -> None:
    course.refresh()
    before = [(course.workspace / name).stat() for name in (FIRST, SECOND)]
    assert course.refresh() == []
    assert [(course.workspace / name).stat() for name in (FIRST, SECOND)] == before


def test_an_untouched_notebook_is_updated_in_place(course: Course) -> None:
    course.refresh()
    course.release_again()
    assert course.refresh() == [f"updated: {FIRST}"]
    assert course.files() == {name: (course.release / name).read_bytes() for name in (FIRST, SECOND)}


def test_a_changed_notebook_is_kept_and_the_new_release_comes_beside_it_once(course: Course) -> None:
    course.refresh()
    course.learner_writes()
    course.release_again()
    said = course.refresh()
    assert said == [f"kept: your {FIRST}; its new release is beside it, in 01_framing.new.ipynb"]
    assert sources(course.workspace / FIRST) == ["first", "my answer"]
    assert sources(course.workspace / NEW) == ["better", "write here"]
    (course.workspace / NEW).unlink()
    assert course.refresh() == []
    assert not (course.workspace / NEW).exists(), "it was offered once, and the learner threw it away"


def test_a_changed_notebook_without_a_new_release_is_not_spoken_of(course: Course) -> None:
    course.refresh()
    course.learner_writes()
    assert course.refresh() == []
    assert sources(course.workspace / FIRST) == ["first", "my answer"]


def test_running_and_saving_without_an_edit_is_no_change(course: Course) -> None:
    """As JupyterLab saves: sources as lists of lines, outputs, counts, its own metadata, one more empty cell."""
    course.refresh()
    saved = json.loads((course.workspace / FIRST).read_bytes())
    for count, cell in enumerate(saved["cells"]):
        cell.update(source=cell["source"].splitlines(keepends=True), execution_count=count)
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["hello"]}]
        cell["metadata"]["trusted"] = True
    saved["cells"].append({"cell_type": "code", "metadata": {}, "source": [], "outputs": [], "execution_count": None})
    saved["metadata"]["language_info"] = {"name": "python", "version": "3.12.1"}
    write(course.workspace / FIRST, saved)
    course.release_again()
    assert course.refresh() == [f"updated: {FIRST}"]


def test_what_nbgrader_keeps_about_a_cell_counts(course: Course) -> None:
    course.refresh()
    changed = json.loads((course.workspace / FIRST).read_bytes())
    changed["cells"][0]["metadata"]["nbgrader"] = {"grade": True, "grade_id": "x"}
    write(course.workspace / FIRST, changed)
    course.release_again()
    assert course.refresh()[0].startswith("kept:")


def test_a_release_that_changes_only_metadata_reaches_an_untouched_notebook(course: Course) -> None:
    course.refresh()
    write(course.release / FIRST, notebook("first", "write here", kernelspec={"name": "python3"}))
    assert course.refresh() == [f"updated: {FIRST}"]
    assert course.files()[FIRST] == (course.release / FIRST).read_bytes()


def test_the_notebook_beside_is_replaced_only_while_nobody_worked_in_it(course: Course) -> None:
    course.refresh()
    course.learner_writes()
    course.release_again(text="better")
    course.refresh()
    course.release_again(text="best")
    course.refresh()
    assert sources(course.workspace / NEW) == ["best", "write here"]
    course.learner_writes("work in the new one", name=NEW)
    course.release_again(text="final")
    assert course.refresh() == [f"kept: your {FIRST}; its new release is beside it, in 01_framing.new2.ipynb"]
    assert sources(course.workspace / NEW) == ["first", "work in the new one"]
    assert sources(course.workspace / "receiver/01_framing.new2.ipynb") == ["final", "write here"]


def test_a_learner_who_took_the_new_release_gets_the_next_one_in_place(course: Course) -> None:
    course.refresh()
    course.learner_writes()
    course.release_again(text="better")
    course.refresh()
    os.replace(course.workspace / NEW, course.workspace / FIRST)
    course.release_again(text="best")
    assert course.refresh() == [f"updated: {FIRST}"]


def test_a_notebook_that_was_removed_comes_back(course: Course) -> None:
    course.refresh()
    (course.workspace / FIRST).unlink()
    assert course.refresh() == [f"new: {FIRST}"]
    assert sources(course.workspace / FIRST) == ["first", "write here"]


def test_a_new_notebook_is_said(course: Course) -> None:
    course.refresh()
    write(course.release / "pages/01_cursor.ipynb", notebook("pages"))
    assert course.refresh() == ["new: pages/01_cursor.ipynb"]


@pytest.mark.parametrize("notes", [None, b"", b"{", b"[]", b'{"files": {"a": 1}}', b'{"files": []}', b"\xff\x00"])
def test_without_notes_everything_that_differs_is_the_learners(course: Course, notes: bytes | None) -> None:
    course.refresh()
    course.learner_writes()
    kept = course.workspace / ".recovery-lab" / "released.json"
    kept.unlink() if notes is None else kept.write_bytes(notes)
    course.refresh()
    assert sources(course.workspace / FIRST) == ["first", "my answer"]
    assert sources(course.workspace / NEW) == ["first", "write here"]
    assert set(course.files()) == {FIRST, NEW, SECOND}


@pytest.mark.parametrize("damage", [b"", b"not a notebook", b'{"cells": [{}]}', b'{"cells": 3}', b"[]", b"\xff\xfe"])
def test_a_damaged_notebook_is_the_learners_all_the_same(course: Course, damage: bytes) -> None:
    course.refresh()
    (course.workspace / FIRST).write_bytes(damage)
    course.release_again()
    assert course.refresh()[0].startswith("kept:")
    assert (course.workspace / FIRST).read_bytes() == damage


def test_client_py_is_never_touched_even_if_a_release_had_one(course: Course) -> None:
    course.refresh()
    (course.workspace / "receiver/client.py").write_text("mine")
    (course.release / "receiver/client.py").write_text("theirs")
    course.release_again()
    assert course.refresh() == [f"updated: {FIRST}"]
    assert (course.workspace / "receiver/client.py").read_text() == "mine"


def test_a_linked_notebook_is_not_written_through_nor_replaced(course: Course, tmp_path: Path) -> None:
    course.refresh()
    elsewhere = tmp_path / "elsewhere.ipynb"
    os.replace(course.workspace / FIRST, elsewhere)
    (course.workspace / FIRST).symlink_to(elsewhere)
    course.release_again()
    assert course.refresh()[0].startswith("kept:")
    assert (course.workspace / FIRST).is_symlink()
    assert sources(elsewhere) == ["first", "write here"]


def test_a_folder_where_a_notebook_belongs_is_kept(course: Course) -> None:
    (course.workspace / FIRST).mkdir(parents=True)
    assert f"kept: your {FIRST}; its new release is beside it, in 01_framing.new.ipynb" in course.refresh()
    assert (course.workspace / FIRST).is_dir()


# --------------------------------------------------------------------------------------- ended in the middle

ENDED_AT_A_STEP = """
import os, signal, sys
from pathlib import Path
from lab.workspace import refresh

left = int(sys.argv[3])

def counted(call):
    def with_end(*arguments, **more):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*arguments, **more)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return with_end

os.replace, os.fsync = counted(os.replace), counted(os.fsync)
refresh(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_ended_anywhere_it_loses_nothing_and_the_next_start_finishes(tmp_path: Path) -> None:
    """SIGKILL before and after every call that makes something durable, until one run gets to its end."""
    for step in range(1, 100):
        course = Course(tmp_path / str(step))
        course.refresh()
        course.learner_writes()
        course.release_again()
        course.release_again(SECOND)
        command = [sys.executable, "-c", ENDED_AT_A_STEP, str(course.release), str(course.workspace), str(step)]
        status = subprocess.run(command, cwd=ROOT, timeout=DEADLINE).returncode
        assert status in (0, -9)
        assert sources(course.workspace / FIRST) == ["first", "my answer"]
        assert sources(course.workspace / SECOND) in (["second"], ["better", "write here"])
        course.refresh()
        assert {name: sources(course.workspace / name) for name in course.files()} == {
            FIRST: ["first", "my answer"],
            NEW: ["better", "write here"],
            SECOND: ["better", "write here"],
        }
        assert course.refresh() == []
        if status == 0:
            break
    assert step == 13, "three files, each made durable and put in place, ended before and after: 12 ends, then none"


# ------------------------------------------------------------------------------------ what cannot be a workspace


def refused(course: Course, workspace: Path) -> str:
    with pytest.raises(WorkspaceError) as problem:
        refresh(course.release, workspace)
    assert "\n" not in str(problem.value)
    return str(problem.value)


def test_a_file_is_refused(course: Course, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    assert refused(course, tmp_path / "file").endswith(
        "is a file, not a folder: choose another workspace with --workspace DIR"
    )
    assert "cannot write the workspace" in refused(course, tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_link_to_a_folder_is_that_folder(course: Course, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    refresh(course.release, tmp_path / "link")
    assert sources(tmp_path / "real" / FIRST) == ["first", "write here"]


def test_a_link_to_nothing_is_refused(course: Course, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert f"is a link to {tmp_path / 'gone'}, which is not there" in refused(course, tmp_path / "link")
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("inside", [".", "notebooks", "solutions/receiver", "lab", ".git"])
def test_the_labs_own_folders_are_refused(course: Course, inside: str) -> None:
    before = sorted(course.release.parent.rglob("*"))
    assert "belongs to the lab itself" in refused(course, course.release.parent / inside)
    assert sorted(course.release.parent.rglob("*")) == before


def test_a_workspace_that_cannot_be_written_is_said_in_one_line(course: Course) -> None:
    course.refresh()
    course.learner_writes()
    course.release_again()
    script = "import sys; from pathlib import Path; from lab.workspace import *\n"
    script += "try: refresh(Path(sys.argv[1]), Path(sys.argv[2]))\nexcept WorkspaceError as problem: print(problem)"
    folders = [course.workspace / "receiver", course.workspace / ".recovery-lab", course.workspace]
    for folder in folders:
        folder.chmod(0o555)
    try:
        command = as_ordinary_user([sys.executable, "-c", script, str(course.release), str(course.workspace)])
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert done.stderr == ""
    assert done.stdout.startswith("cannot write the workspace (Permission denied: ")
    assert done.stdout.endswith("): choose another one with --workspace DIR\n")
    assert sources(course.workspace / FIRST) == ["first", "my answer"]


def test_a_release_without_notebooks_says_who_makes_them(course: Course, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(WorkspaceError, match=r"there are no notebooks in .*: `recovery-lab build` makes them"):
        refresh(tmp_path / "empty", course.workspace)


def test_it_starts_with_the_first_notebook_of_the_first_unit(course: Course) -> None:
    write(course.release / "pages/01_cursor.ipynb", notebook("pages"))
    assert first_notebook(course.release) == FIRST
    assert first_notebook(ROOT / "notebooks") == FIRST
