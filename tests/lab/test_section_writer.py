"""One section is written, and everything else in the file comes out byte for byte as it went in."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from graders.engine.section_writer import (
    cell_body,
    chunks,
    foreign_marker,
    is_starter,
    owner_of,
    place,
    section_text,
    up_to,
)
from lab import learner_file

STEPS = ["framing", "store", "atomic_apply"]
FULL = '"""Mine."""\n\n\n# %% framing\na = 1\n\n\n# %% [markdown]\n# Some words.\n\n# %% store\nb = 2\n'
STRANGE = (
    "\n\n#%%framing\r\na = 1\r# %% helper\nh = 1\n# %% [md] words\n# more\n"
    '# %%  store  and more\nb = """\n# %% framing\n"""'
)


@pytest.mark.parametrize("source", ["", "\n", "x = 1", FULL, FULL.replace("\n", "\r\n"), STRANGE])
def test_the_parts_of_a_file_are_the_file(source: str) -> None:
    assert "".join(line for chunk in chunks(source, STEPS) for line in chunk.lines) == source


def test_a_section_is_replaced_where_it_stands() -> None:
    assert place(FULL, "framing", "a = 3\nc = 4", STEPS) == FULL.replace("a = 1", "a = 3\nc = 4")


def test_writing_what_is_there_changes_nothing() -> None:
    source = ""
    for step in ("store", "framing", "atomic_apply"):
        source = place(source, step, f"{step} = 1", STEPS)
    sections = [f"# %% {step}\n{step} = 1\n" for step in STEPS]
    assert source == "\n\n".join(sections)
    for step in STEPS:
        assert place(source, step, f"{step} = 1", STEPS) == source


def test_a_new_section_goes_behind_the_nearest_earlier_one() -> None:
    after_store = place(FULL, "atomic_apply", "c = 3", STEPS)
    assert after_store == FULL + "\n\n# %% atomic_apply\nc = 3\n"
    between = place("# %% framing\na = 1\n# %% atomic_apply\nc = 3\n", "store", "b = 2", STEPS)
    assert between == "# %% framing\na = 1\n\n\n# %% store\nb = 2\n\n\n# %% atomic_apply\nc = 3\n"


def test_the_first_section_goes_behind_the_preamble_and_before_text() -> None:
    source = "import os\n\n# %% [markdown]\n# words\n# %% store\nb = 2"
    written = place(source, "framing", "a = 1", STEPS)
    assert written == "import os\n\n\n# %% framing\na = 1\n\n\n# %% [markdown]\n# words\n# %% store\nb = 2"


def test_what_is_not_the_section_keeps_every_byte() -> None:
    written = place(STRANGE, "store", "b = 3", STEPS)
    assert written.startswith(STRANGE[: STRANGE.index("# %%  store")])
    assert section_text(written, "store", STEPS) == "b = 3"
    assert section_text(written, "framing", STEPS) == section_text(STRANGE, "framing", STEPS)


def test_all_cells_of_a_section_are_replaced_and_text_between_them_stays() -> None:
    source = "# %% framing\na = 1\n# %% [markdown]\n# words\n# %% more\nd = 1\n# %% store\nb = 2\n"
    written = place(source, "framing", "a = 2", STEPS)
    assert "d = 1" not in written
    assert written.endswith("# %% [markdown]\n# words\n# %% store\nb = 2\n")
    assert section_text(written, "framing", STEPS) == "a = 2"


def test_a_file_without_a_last_line_end_gets_one_before_the_next_section() -> None:
    assert place("x = 1", "framing", "a = 1", STEPS) == "x = 1\n\n\n# %% framing\na = 1\n"


def test_line_ends_are_the_file_s_own() -> None:
    written = place(FULL.replace("\n", "\r\n"), "store", "b = 3\nc = 4", STEPS)
    assert written == FULL.replace("b = 2", "b = 3\nc = 4").replace("\n", "\r\n")


def test_solution_marks_and_the_magic_line_are_not_code() -> None:
    cell = (
        "%%step framing\n\ndef f():\n    ### BEGIN SOLUTION\n    return '### BEGIN SOLUTION'\n    ### END SOLUTION\n\n"
    )
    assert cell_body(cell) == "def f():\n    return '### BEGIN SOLUTION'"


def test_a_starter_is_known_by_its_stub() -> None:
    assert is_starter("def f():\n    # YOUR CODE HERE\n    raise NotImplementedError()")
    assert not is_starter("def f():\n    'raise NotImplementedError'\n    return 1")


def test_a_cell_that_holds_another_cell_is_recognised() -> None:
    assert foreign_marker("a = 1\n# %% store\nb = 2", "framing", STEPS) == (2, "# %% store")
    assert foreign_marker("# %% [markdown]\n# words", "framing", STEPS) == (1, "# %% [markdown]")
    assert foreign_marker("# %% framing\na = 1\n# %% a part of it\nb = '''\n# %% store\n'''", "framing", STEPS) is None


def test_a_step_s_program_keeps_the_file_s_line_numbers() -> None:
    program = up_to(FULL, "framing", STEPS).split("\n")
    assert program[FULL.split("\n").index("a = 1")] == "a = 1"
    assert "b = 2" not in program and "# Some words." not in program
    assert owner_of(FULL, FULL.split("\n").index("b = 2") + 1, STEPS) == "store"
    assert owner_of(FULL, 1, STEPS) == owner_of(FULL, 0, STEPS) == owner_of(FULL, 99, STEPS) == ""


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"client.py": 3}', '{"client.py": {"framing": null}}', "[" * 10_000]
)
def test_a_damaged_memory_is_no_memory(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "client.py"
    (tmp_path / learner_file.MEMORY).mkdir()
    (tmp_path / learner_file.MEMORY / "sections.json").write_text(damage)
    assert learner_file.remembered(path).get("framing") != learner_file.fingerprint("a = 1")
    learner_file.remember(path, {"framing": "a = 1"})
    assert learner_file.remembered(path)["framing"] == learner_file.fingerprint("a = 1")


def test_a_backup_never_replaces_another(tmp_path: Path) -> None:
    names = [learner_file.back_up(tmp_path / "client.py", "framing", text) for text in ("one", "two")]
    assert names == ["client.framing.1.bak.py", "client.framing.2.bak.py"]
    assert [(tmp_path / name).read_text() for name in names] == ["one\n", "two\n"]


def test_a_failed_write_leaves_the_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "client.py"
    path.write_text("a = 1\n")
    with pytest.raises(UnicodeEncodeError):
        learner_file.write(path, "\udc80")
    assert path.read_text() == "a = 1\n"
    assert list(tmp_path.iterdir()) == [path]


def _add_sections(path: Path, name: str) -> None:
    for _ in range(20):
        with learner_file.locked(path):
            source = learner_file.read(path)
            learner_file.write(path, place(source, name, f"{name} = 1", STEPS))
            learner_file.remember(path, {name: f"{name} = 1"})


def test_two_processes_that_write_lose_nothing_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "client.py"
    start = multiprocessing.get_context("spawn")
    writers = [start.Process(target=_add_sections, args=(path, name)) for name in STEPS]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert {step: section_text(path.read_text(), step, STEPS) for step in STEPS} == {s: f"{s} = 1" for s in STEPS}
    assert set(learner_file.remembered(path)) == set(STEPS)
