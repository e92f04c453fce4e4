"""`check` in a real kernel: a report, the points as nbgrader reads them, and nothing that costs points by accident."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from lab_kernel import ROOT, Kernel, Ran
from nbformat.v4 import new_code_cell, new_output

from graders import registry

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # importing nbgrader warns about what its own dependencies do
    from nbgrader.utils import determine_grade

HALF = "import sqlite3\n\n\ndef open_store(path):\n    return sqlite3.connect(path, isolation_level=None)"


def grade(ran: Ran, most: float) -> float:
    """What nbgrader gives for a test cell with this output."""
    outputs = [new_output("stream", name="stdout", text=ran.stdout)] if ran.stdout else []
    outputs += [new_output("stream", name="stderr", text=ran.stderr)] if ran.stderr else []
    outputs += [new_output("display_data", data=shown) for shown in ran.shown]
    outputs += [new_output("execute_result", data={"text/plain": ran.value})] if ran.value is not None else []
    cell = new_code_cell(outputs=outputs)
    cell.metadata["nbgrader"] = {"grade": True, "solution": False, "points": most, "grade_id": "t", "cell_type": "code"}
    points, _ = determine_grade(cell, logging.getLogger())
    assert points is not None
    return float(points)


def test_the_reference_gets_all_points_of_every_step(kernel: Kernel, tmp_path: Path) -> None:
    unit = registry.unit("receiver")
    (tmp_path / "client.py").write_text(unit.reference())
    for step in unit.steps:
        ran = kernel.run(f"from lab import check\ncheck({step.name!r})")
        assert ran.clean and grade(ran, step.max_score) == step.max_score, (step.name, ran)
        assert ran.value == format(step.max_score, "g")


def test_a_report_is_shown_as_text_and_as_html(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(registry.unit("receiver").reference())
    (report,) = kernel.run("check('framing')").shown
    assert "framing" in report["text/plain"] and "framing" in report["text/html"]


def test_half_a_step_gets_part_of_its_points(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(f"# %% store\n{HALF}\n")
    ran = kernel.run("check('store')")
    most = registry.unit("receiver").steps[1].max_score
    assert ran.clean
    assert 0 < grade(ran, most) < most


@pytest.mark.parametrize(
    "source",
    ["", "# %% store\nx = 1\n", "# %% framing\ndef f(:\n", "# %% framing\nimport os\nos._exit(0)\n", "not a program"],
)
def test_nothing_to_judge_is_no_points_and_no_error(kernel: Kernel, tmp_path: Path, source: str) -> None:
    (tmp_path / "client.py").write_text(source)
    ran = kernel.run("check('framing')")
    assert ran.clean and ran.shown
    assert ran.value == "0" and grade(ran, 3) == 0


def test_no_file_is_no_points_and_a_word_about_what_to_run(kernel: Kernel) -> None:
    ran = kernel.run("check('framing')")
    assert ran.clean and grade(ran, 3) == 0
    assert ran.lines == ["There is no client.py here yet: run the cell that starts with %%step framing"]
    assert grade(kernel.run("check('no_such_step')"), 3) == 0


def test_all_steps_together(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(registry.unit("receiver").reference())
    total = sum(step.max_score for step in registry.unit("receiver").steps)
    assert kernel.run("check()").value == format(total, "g")


def test_the_judge_s_own_failure_is_loud(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text("# %% framing\n")
    kernel.run(
        "from lab import notebook\nfrom graders.verdict import *\nkept = notebook.judge\n"
        "rule = Finding('framing/range', 'Numbers in range.', Outcome.ERROR, 3.0, 'no process left')\n"
        "notebook.judge = lambda *a, **k: Verdict('receiver', 1, [StepVerdict('framing', 'Framing', [rule])])"
    )
    ran = kernel.run("check('framing')")
    kernel.run("notebook.judge = kept")
    assert ran.clean
    assert "THE JUDGE ITSELF FAILED at framing/range" in ran.stdout and "no process left" in ran.stdout
    assert grade(ran, 3) == 3


@pytest.mark.parametrize(
    ("points", "most", "shown"),
    [
        (2.5, 3, "2.5"),
        (3, 3, "3"),
        (4, 3, "3"),
        (-1, 3, "0"),
        (math.nan, 3, "0"),
        (math.inf, 3, "0"),
        (1 / 3, 1, "0.333333"),
    ],
)
def test_a_score_is_finite_and_within_its_step(points: float, most: float, shown: str) -> None:
    from lab.notebook import Score

    assert repr(Score(points, most)) == shown
    assert 0 <= Score(points, most) <= most


def test_importing_the_lab_needs_the_standard_library_only() -> None:
    program = (
        "import sys, lab; lab.load_ipython_extension; "
        "print({'IPython', 'click', 'nbformat', 'graders'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_an_unknown_name_of_the_lab_is_an_attribute_error() -> None:
    import lab

    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        lab.chek  # noqa: B018
