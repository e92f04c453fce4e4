"""What a person does in JupyterLab, as far as these tests do it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page, expect

PATIENCE = 120_000.0  # milliseconds; a busy machine takes a few seconds
NOTEBOOK = ".jp-NotebookPanel:not(.lm-mod-hidden)"
IDLE = f"{NOTEBOOK} .jp-Notebook-ExecutionIndicator[data-status=idle]"
SCROLL = 500  # pixels
MOST_SCROLLS = 80


class LabPage:
    """A page with JupyterLab in it."""

    def __init__(self, page: Page, address: str, workspace: Path) -> None:
        self.page = page
        self.address = address
        self.workspace = workspace
        page.set_default_timeout(PATIENCE)

    def open(self, notebook: str = "") -> None:
        """Open the lab at the address that was printed, or at another notebook."""
        parts = urlsplit(self.address)
        path = f"/lab/tree/{notebook}" if notebook else parts.path
        # Without `reset` the lab would open again what another page has left open.
        self.page.goto(f"{parts.scheme}://{parts.netloc}{path}?{parts.query}&reset")
        self.page.wait_for_selector(IDLE)

    def cell(self, text: str) -> Locator:
        """The first cell with this text, brought into view: the lab draws only what can be seen."""
        cells = self.page.locator(f"{NOTEBOOK} .jp-Cell", has_text=text)
        self.page.locator(f"{NOTEBOOK} .jp-WindowedPanel-outer").evaluate("panel => panel.scrollTo(0, 0)")
        for _ in range(MOST_SCROLLS):
            if cells.count():
                cells.first.scroll_into_view_if_needed()
                return cells.first
            self.page.locator(f"{NOTEBOOK} .jp-WindowedPanel-outer").evaluate(f"panel => panel.scrollBy(0, {SCROLL})")
            self.page.wait_for_timeout(50)
        raise AssertionError(f"no cell has the text {text!r}")

    def write(self, cell: Locator, code: str) -> None:
        """Put `code` in place of what is in the cell."""
        cell.locator(".cm-content").first.click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(code)

    def run(self, cell: Locator) -> None:
        """Run the cell and wait until the kernel has nothing to do."""
        cell.locator(".cm-content").first.click()
        self.page.keyboard.press("Control+Enter")
        expect(cell.locator(".jp-InputPrompt").first).not_to_have_text("[*]:", timeout=PATIENCE)
        self.page.wait_for_selector(IDLE)
