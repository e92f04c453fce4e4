"""A learner's first minutes, in a real browser: a wrong parser, its story, the right one, and Validate."""

from __future__ import annotations

import pytest
from lab_page import PATIENCE, LabPage
from playwright.sync_api import expect
from starts import ROOT

from graders import registry
from graders.engine.section_writer import section_text

pytestmark = pytest.mark.timeout(600)
UNIT = registry.unit("receiver")
RIGHT = str(section_text(UNIT.reference(), "framing", [step.name for step in UNIT.steps]))
WRONG = """class ProtocolError(ValueError):
    pass


def parse_line(line):
    try:
        word, seq, delta = line.split()
    except ValueError:
        raise ProtocolError(f"three words expected: {line!r}")
    return int(seq), int(delta)
"""
PICTURES = ROOT / "docs"


def test_from_a_wrong_parser_to_a_passed_step(lab_page: LabPage, request: pytest.FixtureRequest) -> None:
    lab_page.open()
    lab_page.run(lab_page.cell("%load_ext lab"))
    step = lab_page.cell("%%step framing")
    lab_page.write(step, f"%%step framing\n{WRONG}")
    lab_page.run(step)
    report = step.locator(".jp-OutputArea")
    expect(report).to_contain_text("framing/length")
    for heading in ("Expected", "Observed", "Look at"):
        expect(report).to_contain_text(heading)
    if request.config.getoption("--record"):
        step.locator(".jp-OutputArea").scroll_into_view_if_needed()
        lab_page.page.screenshot(path=PICTURES / "first_notebook.png")

    lab_page.write(step, f"%%step framing\n{RIGHT}")
    lab_page.run(step)
    expect(report).to_contain_text("3 of 3")
    expect(report).not_to_contain_text("framing/length")
    test = lab_page.cell('check("framing")')
    lab_page.run(test)
    expect(test.locator(".jp-OutputArea")).to_contain_text("3 of 3")
    assert RIGHT in (lab_page.workspace / "receiver" / UNIT.file_name).read_text()


def test_validate_in_the_toolbar_likes_a_solution(lab_page: LabPage) -> None:
    lab_page.open()
    step = lab_page.cell("%%step framing")
    lab_page.write(step, f"%%step framing\n{RIGHT}")
    answer = lab_page.cell("YOUR ANSWER HERE")
    answer.dblclick()
    lab_page.write(answer, "First the spelling is decided, then numbers are made: int() would forgive too much.")
    lab_page.page.locator(".validate-button").first.click()  # saves first
    expect(lab_page.page.locator(".jp-Dialog")).to_contain_text(
        "Success! Your notebook passes all the tests.", timeout=PATIENCE
    )
