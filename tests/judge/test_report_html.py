"""The report as HTML: well formed, readable in both themes, without scripts, deaf to what learners put into it."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from report_samples import MIXED, NASTY, PASSED, hostile

from graders.report import html
from graders.verdict import Exploration, Verdict

TAGS = {
    *("section", "div", "p", "span", "strong", "code", "br", "ul", "li", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td", "img"),
}
ATTRIBUTES = {"style", "role", "aria-level", "aria-label", "scope", "colspan", "src", "alt"}
VOID = {"br", "img"}
PICTURE = "data:image/svg+xml;base64,"


class Reader(HTMLParser):
    """Collects text, and checks that elements nest and that there are no others than the report's own."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.words: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        assert {name for name, _ in attrs} <= ATTRIBUTES, attrs
        assert tag != "img" or (str(dict(attrs)["src"]).startswith(PICTURE) and dict(attrs)["alt"])
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl}")


def read(fragment: str) -> Reader:
    reader = Reader()
    reader.feed(fragment)
    reader.close()
    assert reader.open == []
    return reader


def text_of(fragment: str) -> str:
    return " ".join("".join(read(fragment).words).split())


def pictures(fragment: str) -> list[str]:
    """The SVG texts of a report's pictures."""
    return [base64.b64decode(data).decode() for data in re.findall(f'{re.escape(PICTURE)}([^"]*)"', fragment)]


def test_the_story_is_a_picture_too() -> None:
    (picture,) = pictures(html.render(MIXED))
    drawn = " ".join(ElementTree.fromstring(picture).itertext())
    for words in (
        "publisher",
        "receiver",
        "store",
        r"EVENT 0 7\n",
        "open_store comes back",
        "Here the promise is broken",
    ):
        assert words in drawn


def test_everything_is_told_in_words() -> None:
    told = text_of(html.render(MIXED))
    for words in (
        "fail store: 1.5 of 2 points, 1 of 3 rules kept",
        "the judge could not tell store/refuses: no points lost",
        "Broken: store/two_openers, 0 of 0.5 points",
        'In your codeclient.py line 72: con.execute("BEGIN")',
        "Likely causeBEGIN takes no lock",
        "Kept: 1 rule",
        "skipped retention: 0 of 2 points",
        "Skipped: returns, pure. Not judged: first do defines.",
        "Score: 1.5 of 4 points.",
        "659 moments at which the process can end, 18 different states among them, 36 real kills",
        "does not show a power cut",
        "recovery-lab check client.py --step store --step retention --seed 20261130",
    ):
        assert words in told
    assert "power cut" not in text_of(html.render(PASSED))


def test_the_story_is_a_table_with_a_column_for_each_lane() -> None:
    fragment = html.render(MIXED)
    headers = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', fragment)
    assert headers == ["No.", "publisher", "receiver", "store"]
    rows = re.findall(r"<tr[^>]*><td[^>]*>(\d*)</td>(.*?)</tr>", fragment)
    cells = {number: re.findall(r"<td[^>]*>(.*?)</td>", rest) for number, rest in rows}
    assert cells == {
        "1": ["", "", "starts as last=-1 total=0 ledger={}"],
        "2": [r"sends <code>EVENT 0 7\n</code>", "", ""],
        "": ["… 3 more …"],
        "6": ["", "open_store comes back", ""],
    }


def test_it_is_announced_sensibly() -> None:
    elements = read(html.render(MIXED)).elements
    assert elements[0][0] == "section" and elements[0][1]["aria-label"] == "Report on receiver"
    roles = [attributes["role"] for _, attributes in elements if "role" in attributes]
    assert roles == ["heading", "alert", "heading", "heading"]


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_with_a_colour_has_a_background_and_contrast() -> None:
    for verdict in (MIXED, PASSED):
        for _, attributes in read(html.render(verdict)).elements:
            style = dict(part.split(":", 1) for part in (attributes.get("style") or "").split(";") if ":" in part)
            style = {name.strip(): value.strip() for name, value in style.items()}
            if style.get("color", "inherit") != "inherit":
                light, dark = luminance(style["color"]), luminance(style["background"])
                assert (max(light, dark) + 0.05) / (min(light, dark) + 0.05) >= 4.5
            else:
                assert style.get("background", "transparent") == "transparent"


def test_time_never_shows() -> None:
    slower = Verdict(MIXED.unit, MIXED.seed, MIXED.steps, Exploration(659, 18, 36, 99.0))
    assert html.render(slower) == html.render(MIXED)


@pytest.mark.parametrize("nasty", NASTY, ids=range(len(NASTY)))
def test_hostile_text_stays_text(nasty: str) -> None:
    fragment = html.render(hostile(nasty))
    read(fragment)
    fragment.encode("utf-8")
    assert all(char == "\n" or char.isprintable() for char in fragment)
    assert len(fragment) < 100_000
    assert "49" not in re.sub(f'#[0-9a-f]{{6}}|{PICTURE}[^"]*', "", fragment)  # no template is run
    for picture in pictures(fragment):
        ElementTree.fromstring(picture)
    if nasty.startswith("<"):
        assert nasty in text_of(fragment)
