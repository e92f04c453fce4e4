"""JupyterLab on a fresh workspace, and a real browser in front of it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

from starts import ROOT, Started, surroundings


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser") / "work"


@pytest.fixture(scope="session")
def address(browser: Browser, workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the lab is open; the workspace is made."""
    command = [sys.executable, "-m", "lab.cli", "--workspace", str(workspace), "--no-browser", "--port", "0"]
    home = tmp_path_factory.mktemp("home")
    with Started(command, ROOT, surroundings(HOME=str(home))) as started:
        yield started.line_with("is open").split()[5]
        started.interrupt()
