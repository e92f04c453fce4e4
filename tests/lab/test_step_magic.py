"""`%%step`, `hint` and `catch_up` in a real kernel: what they write, what they say, and what cannot take the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab_kernel import Kernel

from graders import registry

FRAMING = "class ProtocolError(ValueError):\n    pass\n\n\ndef parse_line(line):\n    return 7, 1"
STARTER = "class ProtocolError(ValueError):\n    pass\n\n\ndef parse_line(line):\n    raise NotImplementedError()"
STORE = "import sqlite3\n\n\ndef open_store(path):\n    return sqlite3.connect(path)"


def test_a_cell_becomes_its_section_and_its_names_are_ready(kernel: Kernel, tmp_path: Path) -> None:
    ran = kernel.run(f"%%step framing\n### BEGIN SOLUTION\n{FRAMING}\n### END SOLUTION")
    assert ran.clean and ran.value is None
    assert ran.lines == ["framing is in client.py. Ready here: ProtocolError, parse_line."]
    assert (tmp_path / "client.py").read_text() == f"# %% framing\n{FRAMING}\n"
    assert kernel.run("parse_line(b'')").value == "(7, 1)"
    assert kernel.run("import client; client.parse_line is parse_line").value == "True"


def test_other_sections_keep_every_byte_and_run_only_if_they_come_first(kernel: Kernel, tmp_path: Path) -> None:
    file = tmp_path / "client.py"
    file.write_bytes(b"'''Mine.'''\r\nX = 1\n\n# %% [markdown]\n# words\n# %% store \nimport nothing_like_this\n")
    assert kernel.run(f"%%step framing\n{FRAMING}").clean
    assert file.read_bytes().startswith(b"'''Mine.'''\r\nX = 1\n")
    assert file.read_bytes().endswith(b"# %% [markdown]\n# words\n# %% store \nimport nothing_like_this\n")
    assert kernel.run("X, parse_line(b'')").value == "(1, (7, 1))"


def test_a_main_block_never_runs(kernel: Kernel) -> None:
    body = f'{FRAMING}\n\n\nif __name__ == "__main__":\n    raise SystemExit(9)'
    assert kernel.run(f"%%step framing\n{body}").lines[-1].startswith("framing is in client.py.")


def test_running_a_cell_again_is_quiet_and_a_hand_edit_is_kept(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run(f"%%step framing\n{FRAMING}")
    assert len(kernel.run(f"%%step framing\n{FRAMING}\n# once more").lines) == 1
    edited = (tmp_path / "client.py").read_text().replace("return 7, 1", "return 8, 1")
    (tmp_path / "client.py").write_text(edited)
    ran = kernel.run(f"%%step framing\n{FRAMING}")
    assert ran.lines[0] == (
        "framing in client.py had been edited elsewhere: that text is kept in client.framing.1.bak.py."
    )
    assert "return 8, 1" in (tmp_path / "client.framing.1.bak.py").read_text()
    assert kernel.run("parse_line(b'')").value == "(7, 1)"
    assert len(kernel.run(f"%%step framing\n{FRAMING}").lines) == 1


def test_without_its_memory_the_magic_backs_up_rather_than_loses(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run(f"%%step framing\n{FRAMING}")
    (tmp_path / ".recovery-lab" / "sections.json").write_text("{damaged")
    kernel.run("%%step framing\nx = 1")
    assert (tmp_path / "client.framing.1.bak.py").read_text() == f"{FRAMING}\n"


def test_a_starter_says_that_it_is_one(kernel: Kernel) -> None:
    assert kernel.run(f"%%step framing\n{STARTER}").lines == [
        "framing is in client.py. Ready here: ProtocolError, parse_line."
        " It still raises NotImplementedError where your code goes."
    ]


def test_a_starter_does_not_replace_work_that_was_done_in_an_editor(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(f"# %% framing\n{FRAMING}\n")
    ran = kernel.run(f"%%step framing\n{STARTER}")
    assert ran.clean and "this cell is still the starter: the file stays as it was" in ran.lines[0]
    assert (tmp_path / "client.py").read_text() == f"# %% framing\n{FRAMING}\n"
    assert kernel.run("parse_line(b'')").value == "(7, 1)"


def test_a_starter_replaces_the_reference(kernel: Kernel, tmp_path: Path) -> None:
    """Otherwise a reference that was asked for would be marked as the learner's own."""
    (tmp_path / "client.py").write_text(registry.unit("receiver").reference())
    kernel.run(f"%%step framing\n{STARTER}")
    assert "raise NotImplementedError()" in (tmp_path / "client.py").read_text()
    assert not list(tmp_path.glob("*.bak.py"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("x = 1\ndef f(:", "client.py, line 3 `def f(:`: SyntaxError: invalid syntax"),
        ("x = 1\n!ls", "line 3 `!ls`: SyntaxError: invalid syntax. Lines with % or ! are for notebooks only."),
        ("import os\nos._exit(3)", "line 3 `os._exit(3)`: importing the file ended the process with exit status 3"),
        ("import os\nos.kill(os.getpid(), 9)", "9)`: importing the file ended the process with SIGKILL"),
        ("import sys\nsys.exit(2)", "client.py, line 3 `sys.exit(2)`: SystemExit: 2"),
        ("def f():\n    return 1 / 0\n\nf()", "client.py, line 3 `return 1 / 0`: ZeroDivisionError: division by zero"),
        ("raise NotImplementedError()", "NotImplementedError. This is where your code goes."),
        ("x = '\0'", "client.py: "),
        ("class E(Exception):\n    def __str__(self): return 1\nraise E", "line 4"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_one_line_and_the_kernel_lives(kernel: Kernel, body: str, said: str) -> None:
    ran = kernel.run(f"%%step framing\n{body}")
    assert ran.clean and len(ran.lines) == 1
    assert said in ran.stdout
    assert "\x1b" not in ran.stdout
    assert kernel.run("1 + 1").value == "2"


def test_a_loop_without_end_is_stopped_and_named(kernel: Kernel) -> None:
    kernel.run("from lab import trial; trial.trouble.__defaults__ = (0.5,)")
    ran = kernel.run("%%step framing\nx = 1\nwhile True:\n    x += 1")
    kernel.run("trial.trouble.__defaults__ = (trial.TIME_LIMIT,)")
    assert ran.clean and "client.py, line " in ran.stdout
    assert "still running after 0.5 seconds, so it was stopped" in ran.stdout


def test_processes_that_a_file_starts_at_import_end_with_the_trial(kernel: Kernel, tmp_path: Path) -> None:
    started = "import subprocess, os\np = subprocess.Popen(['sleep', '600'])\n"
    body = started + "open('pid', 'w').write(str(p.pid))\nos._exit(1)"
    assert kernel.run(f"%%step framing\n{body}").clean
    pid = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_a_flood_of_output_is_cut(kernel: Kernel) -> None:
    ran = kernel.run(f"%%step framing\nfor _ in range(200):\n    print('x' * 1000)\n{FRAMING}")
    assert "… and more; not shown." in ran.stdout
    assert len(ran.stdout) < 25_000
    assert ran.lines[-1].startswith("framing is in client.py.")


def test_after_a_failure_the_old_names_are_gone(kernel: Kernel) -> None:
    kernel.run(f"%%step framing\n{FRAMING}")
    kernel.run("%%step framing\ndef parse_line(line")
    assert kernel.run("parse_line").error == "NameError: name 'parse_line' is not defined"


def test_a_name_of_an_earlier_step_is_pointed_at(kernel: Kernel) -> None:
    ran = kernel.run("%%step retention\nclass ResyncRequired(Gap):\n    pass")
    assert "NameError: name 'Gap' is not defined. Gap belongs to atomic_apply: run that step" in ran.stdout
    assert 'catch_up("retention")' in ran.stdout


def test_a_broken_earlier_step_is_named(kernel: Kernel) -> None:
    kernel.run("%%step framing\nx = (")
    assert "(in framing, an earlier step)" in kernel.run(f"%%step store\n{STORE}").stdout


def test_missing_public_names_are_said(kernel: Kernel) -> None:
    ran = kernel.run("%%step framing\nclass ProtocolError(ValueError):\n    pass")
    assert ran.lines == ["framing is in client.py, but it does not define parse_line."]


def test_the_notebook_s_own_names_are_not_replaced(kernel: Kernel) -> None:
    ran = kernel.run(f"%%step framing\n{FRAMING}\ndef check(): pass")
    assert ran.lines[0] == "check of your file is not brought in: the notebook has a check of its own."
    assert kernel.run("check.__module__").value == "'lab.notebook'"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%%step framming", "No step is called framming; did you mean framing?"),
        ("%%step", "Which step? framing, store, "),
        ("%%step xyzzy", "No step is called xyzzy; the steps are framing, store, "),
    ],
)
def test_an_unknown_step_writes_nothing(kernel: Kernel, tmp_path: Path, line: str, said: str) -> None:
    ran = kernel.run(f"{line}\nx = 1")
    assert ran.clean and ran.stdout.startswith(said)
    assert list(tmp_path.iterdir()) == []


def test_a_cell_with_nothing_or_with_two_steps_in_it_writes_nothing(kernel: Kernel, tmp_path: Path) -> None:
    assert kernel.run("%%step framing\n\n").stdout == "This cell is empty: client.py stays as it was.\n"
    ran = kernel.run("%%step framing\nx = 1\n# %% store\ny = 1")
    assert ran.lines == ["Line 2 of this cell, `# %% store`, starts another cell: client.py stays as it was."]
    assert list(tmp_path.iterdir()) == []


def _directory(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _not_utf8(path: Path) -> None:
    path.write_bytes(b"x = 1\n\xff\xfe")


def _too_long(path: Path) -> None:
    path.write_bytes(b"#" * 1_000_001)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_directory, "client.py is a directory, not a file"),
        (_pipe, "client.py is something special"),
        (_not_utf8, "client.py is not UTF-8 text (byte 6)"),
        (_too_long, "client.py has 1000001 bytes"),
    ],
)
def test_a_file_that_is_no_program_is_one_line(kernel: Kernel, tmp_path: Path, make: object, said: str) -> None:
    make(tmp_path / "client.py")  # type: ignore[operator]
    for call in (f"%%step framing\n{FRAMING}", "check('framing')", "check()", "catch_up('store')"):
        ran = kernel.run(call)
        assert ran.clean and len(ran.lines) == 1 and ran.stdout.startswith(said), call


def test_hints_come_one_by_one(kernel: Kernel) -> None:
    kernel.run("from lab import notebook; notebook._hints_given.clear()")
    hints = registry.unit("receiver").steps[0].hints
    for number, words in enumerate(hints, start=1):
        ran = kernel.run("hint('framing')")
        assert ran.clean and ran.stdout.startswith(f"Hint {number} of {len(hints)}: {words}")
        assert ("(that was the last one)" in ran.stdout) == (number == len(hints))
    assert kernel.run("hint('framing')").stdout.startswith(f"Hint {len(hints)} of {len(hints)}")
    assert "did you mean retention?" in kernel.run("hint('retension')").stdout


def test_catching_up_fills_what_is_missing_and_nothing_else(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(f"# %% store\n{STORE}\n")
    ran = kernel.run("catch_up('retention')")
    assert ran.clean
    assert ran.lines[:2] == [
        "Written to client.py from the reference: framing, atomic_apply.",
        "Yours, and left alone: store.",
    ]
    text = (tmp_path / "client.py").read_text()
    assert text.index("# %% framing") < text.index(f"# %% store\n{STORE}\n") < text.index("# %% atomic_apply")
    assert "# %% retention" not in text
    assert kernel.run("parse_line(b'EVENT 3 -4\\n')").value == "(3, -4)"
    assert kernel.run("catch_up('framing')").lines == ["framing is the first step: there is nothing before it."]


def test_the_crash_map_of_the_file_in_the_folder(kernel: Kernel, tmp_path: Path) -> None:
    assert kernel.run("crash_map()").lines == [
        "No map yet: nothing in the file can be ended yet: the first step with a map is store."
    ]
    kernel.run("catch_up('atomic_apply')")
    ran = kernel.run("crash_map()")
    assert ran.clean
    (shown,) = ran.shown
    assert "def open_store" in shown["text/plain"] and "def open_store" in shown["text/html"]
    assert "✗" not in shown["text/plain"].partition("\n\n")[2]
