"""A verdict as a piece of HTML for a notebook's output, nbgrader's feedback page or an exported notebook.

It brings all it needs and runs no script. Colours are written on the elements, because sanitizers drop style sheets;
text takes the page's own colour, so that it reads in light and dark themes, and whatever has a colour of its own has a
background of its own as well.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from graders.report import parts, sequence
from graders.verdict import Outcome, StepVerdict, Verdict

WORDS = {
    Outcome.PASS: "pass",
    Outcome.FAIL: "fail",
    Outcome.ERROR: "judge error",
    Outcome.SKIPPED: "skipped",
}
# White on these: at least 4.5:1.
COLOURS = {Outcome.PASS: "#1a6b35", Outcome.FAIL: "#b3261e", Outcome.ERROR: "#7a3e9d", Outcome.SKIPPED: "#595f69"}

_CODE = re.compile(r"`([^`\n]+)`")


def render(verdict: Verdict, *, file: str | None = None) -> str:
    """The fragment. `file` is how the reader names the file on a command line (default: the unit's own name)."""
    file = file or parts.file_name(verdict)
    return _template().render(verdict=verdict, file=file, command=parts.command(verdict, file))


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    return environment().get_template("report.html.j2")


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """What the templates of this folder may use. Everything is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "parts": parts,
        "words": WORDS,
        "colours": COLOURS,
        "split": split,
        "sequence": sequence,
    }
    environment.filters |= {"visible": parts.visible, "prose": prose, "points": parts.points}
    return environment


def split(step: StepVerdict) -> dict[str, object]:
    """A step's findings by what came of them."""
    return {str(outcome): parts.with_outcome(step, outcome) for outcome in Outcome}


def prose(text: str) -> Markup:
    """A sentence with `code` in it, escaped, on lines of its own where it has several."""
    escaped = str(escape(parts.visible(text)))
    return Markup(_CODE.sub(r"<code>\1</code>", escaped).replace("\n", "<br>"))
