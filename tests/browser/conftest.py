"""A real browser on a real JupyterLab. Where there is no Chromium, these tests are skipped, and say so."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_page import LabPage
from playwright.sync_api import Browser, sync_playwright
from starts import ROOT, Started, surroundings

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium, so nothing is tried in a browser (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def lab_page(browser: Browser, tmp_path: Path) -> Iterator[LabPage]:
    """JupyterLab as `recovery-lab open` starts it, on a workspace that nobody has used, with a page in the browser."""
    command = [sys.executable, "-m", "lab.cli", "open", "--no-browser", "--workspace", str(tmp_path / "workspace")]
    with Started(command, ROOT, surroundings(HOME=str(tmp_path))) as started:
        address = started.line_with("Recovery Lab is open at ").split(" at ", 1)[1].split()[0]
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        yield LabPage(page, address, tmp_path / "workspace")
        page.close()
