"""The widgets in JupyterLab, clicked and typed at in a real browser."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from lab_page import IDLE, PATIENCE
from playwright.sync_api import Browser, Locator, Page, expect
from starts import ROOT

pytestmark = pytest.mark.timeout(600)
CELLS = ("%load_ext lab", 'watch_store("studio.db")', "crash_studio()")


@pytest.fixture(scope="module")
def page(browser: Browser, address: str, workspace: Path) -> Iterator[Page]:
    """A notebook with both widgets, all its cells run."""
    folder = workspace / "receiver"
    shutil.copy(ROOT / "solutions" / "client.py", folder)
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / "seeing.ipynb")
    page = browser.new_page(viewport={"width": 1300, "height": 2600})
    page.set_default_timeout(PATIENCE)
    page.goto(address.replace("01_framing.ipynb", "seeing.ipynb") + "&reset")
    page.wait_for_selector(IDLE)
    choose(page, "Run", "Run All Cells")
    page.get_by_role("region", name="Crash studio, client.py").wait_for()
    yield page
    page.close()


def choose(page: Page, menu: str, *entries: str) -> None:
    """An entry of a menu, or of a menu in it."""
    page.get_by_role("menuitem", name=menu, exact=True).click()
    for entry in entries:
        page.get_by_text(entry, exact=True).hover()
    page.get_by_text(entries[-1], exact=True).click()


@pytest.fixture
def studio(page: Page) -> Locator:
    """The studio, all anew."""
    studio = page.get_by_role("region", name="Crash studio, client.py")
    studio.get_by_role("button", name="Reset").click()
    expect(studio.get_by_role("status")).to_contain_text("an empty store")
    expect(page.get_by_role("region", name="Store studio.db").get_by_role("status")).to_contain_text("no such file")
    number(studio, "which time the line runs").fill("1")
    return studio


@pytest.fixture
def store(page: Page) -> Locator:
    return page.get_by_role("region", name="Store studio.db")


def line_of_ack(studio: Locator) -> Locator:
    return studio.get_by_role("option", name='return b"ACK')


def number(studio: Locator, name: str) -> Locator:
    return studio.get_by_role("spinbutton", name=name)


def test_kill_restart_and_the_store_view_follows(studio: Locator, store: Locator) -> None:
    expect(store.get_by_role("status")).to_have_text("There is no such file: studio.db.")
    kill = studio.get_by_role("button", name="Kill here")
    line_of_ack(studio).click()
    number(studio, "which time the line runs").fill("2")
    expect(kill).to_have_attribute("aria-disabled", "true")
    number(studio, "cursor").fill("1")
    number(studio, "total").fill("3")
    kill.click()
    expect(studio.get_by_role("status")).to_contain_text("✓ You were right: cursor 1, total 3.")
    events = studio.get_by_role("listitem")
    expect(events.filter(has_text="ACK 1 never arrives")).to_have_count(1)
    expect(events.filter(has_text="SIGKILL")).to_have_count(1)
    expect(store.locator("dd")).to_have_text(["1", "3", "2"])
    studio.get_by_role("button", name="Restart").click()
    expect(studio.get_by_role("status")).to_contain_text("The session came to its end.")
    expect(events.filter(has_text="RESUME 1")).to_have_count(1)
    expect(events.filter(has_text=re.compile(r"EVENT 1 -2\\n\s*again"))).to_have_count(2)
    expect(store.locator("dd")).to_have_text(["2", "12", "3"])
    expect(studio.get_by_role("row")).to_have_count(3)


def test_an_open_transaction_is_seen_and_what_is_in_it_is_not(studio: Locator, store: Locator, workspace: Path) -> None:
    studio.get_by_role("button", name="Run").click()
    expect(studio.get_by_role("status")).to_contain_text("The session came to its end.")
    expect(store.locator("dd")).to_have_text(["2", "12", "3"])
    notice = store.get_by_text("Somebody is changing the store; nobody else can see it yet.")
    expect(notice).to_be_hidden()
    with contextlib.closing(sqlite3.connect(workspace / "receiver" / "studio.db", isolation_level=None)) as con:
        con.execute("BEGIN IMMEDIATE")
        con.execute("UPDATE checkpoint SET total = 1000000")
        expect(notice).to_be_visible()
        expect(store.locator("dd")).to_have_text(["2", "12", "3"])
        con.execute("ROLLBACK")
    expect(notice).to_be_hidden()


def test_everything_by_keyboard(page: Page, studio: Locator, store: Locator) -> None:
    lines = studio.get_by_role("listbox")
    lines.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    chosen = studio.locator("[aria-selected=true]")
    expect(chosen).to_have_count(1)
    assert lines.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    page.keyboard.press("Home")
    expect(chosen).to_contain_text("import re")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("5")
    page.keyboard.press("Tab")
    page.keyboard.type("7")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(studio.get_by_role("status")).to_contain_text("✗ You said cursor 5, total 7; there is cursor -1, total 0.")
    expect(studio.get_by_role("button", name="Kill here")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(studio.get_by_role("status")).to_contain_text("The session came to its end.")
    expect(store.locator("dd")).to_have_text(["2", "12", "3"])
    slider = store.get_by_role("slider")
    slider.focus()
    newest = int(slider.input_value())
    page.keyboard.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(rf"^moment {newest - 1} of {newest}, "))
    page.keyboard.press("End")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^now, "))


def test_a_position_that_is_never_reached_is_said(studio: Locator) -> None:
    line_of_ack(studio).click()
    number(studio, "which time the line runs").fill("50")
    studio.get_by_label("I don't know").check()
    studio.get_by_role("button", name="Kill here").click()
    expect(studio.get_by_role("status")).to_contain_text("did not run the 50th time")


def test_the_crash_map_comes_below(studio: Locator) -> None:
    studio.get_by_role("button", name="Show the crash map").click()
    expect(studio.get_by_role("region", name="Crash map")).to_contain_text("What happens if the power goes out there?")


def test_a_changed_file_is_shown_anew_and_its_mistake_is_one_sentence(studio: Locator, workspace: Path) -> None:
    client = workspace / "receiver" / "client.py"
    text = client.read_text(encoding="utf-8")
    client.write_text("def <b>main</b>(:\n", encoding="utf-8")
    try:
        studio.get_by_role("button", name="Run").click()
        expect(studio.get_by_role("status")).to_contain_text("client.py is not Python yet: line 1")
        expect(studio.get_by_role("listbox")).to_contain_text("def <b>main</b>(:")
    finally:
        client.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_no_barriers(page: Page, studio: Locator, store: Locator, theme: str) -> None:
    """What axe finds, contrast included, in both themes."""
    choose(page, "Settings", "Theme", f"JupyterLab {theme}")
    expect(page.locator("body")).to_have_attribute("data-jp-theme-name", f"JupyterLab {theme}")
    line_of_ack(studio).click()
    studio.get_by_label("I don't know").check()
    studio.get_by_role("button", name="Kill here").click()
    expect(studio.get_by_role("status")).to_contain_text("SIGKILL")
    for widget in (".rlab-studio", ".rlab-store"):
        found = Axe().run(page, context=widget)
        assert found.violations_count == 0, json.dumps(found.response["violations"], indent=1)
