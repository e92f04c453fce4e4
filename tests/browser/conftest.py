"""A real browser on a real JupyterLab. Where there is no Chromium, these tests are skipped, and say so."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_page import PATIENCE, LabPage
from playwright.sync_api import Browser, expect, sync_playwright
from starts import ROOT, Started, surroundings

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium, so nothing is tried in a browser (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser") / "work"


@pytest.fixture(scope="session")
def address(browser: Browser, workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where JupyterLab is, as `recovery-lab open` starts it on a workspace that nobody has used."""
    command = [sys.executable, "-m", "lab.cli", "open", "--no-browser", "--port", "0", "--workspace", str(workspace)]
    with Started(command, ROOT, surroundings(HOME=str(tmp_path_factory.mktemp("home")))) as started:
        yield started.line_with("is open at ").split(" at ", 1)[1].split()[0]
        started.interrupt()


@pytest.fixture
def lab_page(browser: Browser, address: str, workspace: Path) -> Iterator[LabPage]:
    """A new page, and the first notebook as it was handed out."""
    (workspace / "receiver" / "client.py").unlink(missing_ok=True)
    shutil.copy(ROOT / "notebooks" / "receiver" / "01_framing.ipynb", workspace / "receiver")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    yield LabPage(page, address, workspace)
    page.close()
