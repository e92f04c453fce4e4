"""The pictures: well-formed, readable, described in words, and the same in the notebooks as in the code."""

import base64
import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest

from graders import registry
from graders.report import drawing
from lab import pictures

SVG = "{http://www.w3.org/2000/svg}"
SOURCES = Path(__file__).resolve().parents[2] / "solutions" / "receiver"


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb`, as the Web Content Accessibility Guidelines define it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * channel for weight, channel in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_every_step_has_a_picture() -> None:
    assert set(pictures.PICTURES) >= {step.name for step in registry.unit("receiver").steps}


@pytest.mark.parametrize("slug", pictures.PICTURES)
def test_a_picture_says_in_words_what_it_shows(slug: str) -> None:
    picture = ElementTree.fromstring(pictures.for_step(slug))
    assert picture.get("role") == "img"
    title, desc = picture.find(f"{SVG}title"), picture.find(f"{SVG}desc")
    assert title is not None and title.text
    assert desc is not None and len(desc.text or "") > 80


@pytest.mark.parametrize("slug", pictures.PICTURES)
def test_a_picture_is_readable_and_needs_nothing_from_outside(slug: str) -> None:
    picture = ElementTree.fromstring(pictures.for_step(slug))
    assert all(int(text.attrib["font-size"]) >= 12 for text in picture.iter(f"{SVG}text"))
    assert not {element.tag for element in picture.iter()} & {
        f"{SVG}{tag}" for tag in ("script", "style", "image", "use")
    }
    assert "href" not in pictures.for_step(slug)


@pytest.mark.parametrize(
    ("ink", "ground"), list(itertools.product(drawing.INKS, [drawing.PANEL, *drawing.FILLS.values()]))
)
def test_every_ink_is_readable_on_every_ground(ink: str, ground: str) -> None:
    assert contrast(drawing.INKS[ink], ground) >= 4.5


@pytest.mark.parametrize("slug", pictures.PICTURES)
def test_a_notebook_shows_the_picture_that_the_code_draws(slug: str) -> None:
    (path,) = SOURCES.glob(f"*_{slug}.ipynb")
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if cell.id == f"{slug}-picture"]
    found = re.fullmatch(r"!\[([^\]]{20,})\]\(data:image/svg\+xml;base64,([^)]*)\)", cell.source)
    assert found is not None, "one image with an alternative text"
    assert base64.b64decode(found[2]).decode() == pictures.for_step(slug), "recovery-lab build --execute refreshes it"


def test_refresh_refuses_a_notebook_without_a_place_for_the_picture() -> None:
    with pytest.raises(ValueError, match="no cell with the id framing-picture"):
        pictures.refresh(nbformat.v4.new_notebook(), "framing")
