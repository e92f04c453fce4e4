"""An instructor's view of a graded course, in a real browser: nbgrader's formgrader with the judge's reports in it."""

from __future__ import annotations

import secrets
import socket
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from classes import new_class
from click.testing import CliRunner
from lab_page import PATIENCE
from nbgrader_run import UNIT, name_of, read
from playwright.sync_api import Browser, Page, expect
from sandboxed import needs_sandbox
from starts import Started, surroundings

from lab.cli import main

pytestmark = [
    needs_sandbox,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),  # nbgrader's own, about its own
]
SCRIPT = "<script>window.hostile = 1</script><img src=x onerror='window.hostile = 1'>"


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One student, who has solved a step and written a script into the answer in words."""
    course = new_class(tmp_path_factory.mktemp("formgrader") / "course", {"ada": ("framing",)})
    path = course / "submitted" / "ada" / UNIT / name_of("framing")
    notebook = read(path)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "framing-why":
            cell.source = f"Because of **spelling**. {SCRIPT}"
    nbformat.write(notebook, path)
    done = CliRunner().invoke(main, ["grade", UNIT, "--course", str(course)])
    assert done.exit_code == 0, done.output
    return course


@pytest.fixture
def formgrader(course: Path, browser: Browser, tmp_path: Path) -> Iterator[tuple[Page, str]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    base = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += [f"--IdentityProvider.token={token}", "--allow-root"]
    path = f"{sysconfig.get_path('scripts')}:/usr/bin:/bin"
    with Started(command, course, surroundings(HOME=str(tmp_path), PATH=path)) as started:
        started.line_with(f"{base}/lab", "stderr")
        _wait_until_it_answers(f"{base}/api?token={token}")
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE)
        page.goto(f"{base}/login?token={token}")
        yield page, base
        page.close()


def _wait_until_it_answers(address: str) -> None:
    """Jupyter says where it is a moment before it listens there."""
    deadline = time.monotonic() + PATIENCE / 1000
    while True:
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE / 1000):
                return
        except urllib.error.URLError:
            assert time.monotonic() < deadline, "Jupyter does not answer"
            time.sleep(0.1)


def test_the_gradebook_has_the_points_and_no_script_runs(formgrader: tuple[Page, str]) -> None:
    page, base = formgrader
    page.goto(f"{base}/formgrader/manage_submissions/{UNIT}")
    expect(page.locator("body")).to_contain_text("ada", timeout=PATIENCE)
    page.goto(f"{base}/formgrader/gradebook/{UNIT}/{name_of('framing').removesuffix('.ipynb')}")
    page.get_by_role("link", name="Submission #1").click()
    expect(page.locator("body")).to_contain_text("framing", timeout=PATIENCE)
    expect(page.locator("body")).to_contain_text("9 of 9 rules kept")
    expect(page.locator("strong", has_text="spelling")).to_be_visible()
    assert page.evaluate("window.hostile") is None
