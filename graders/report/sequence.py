"""A story as a sequence diagram: three lanes, time downwards, arrows for what went over the connection, a jagged line
where the power goes out, and at the end the first moment at which a promise is broken.
"""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Mapping, Sequence

from graders.engine.story import Lane
from graders.report.drawing import Drawing
from graders.report.parts import Event, lanes_of, shorten, visible
from graders.verdict import Finding

WIDTH = 860
AT = {Lane.PEER: 110, Lane.PROGRAM: 400, Lane.STORE: 690}
LINE = 18  # pixels from one line of text to the next
GAP = 14  # pixels between two events
TOP = 64
LETTERS = {Lane.PEER: 40, Lane.PROGRAM: 40, Lane.STORE: 22}  # that fit beside a lane
ACROSS = 96  # that fit below all lanes
LONGEST = 400  # characters of one event; the table below the picture has more
DATA = re.compile(r"`([^`]+)`")


def image(finding: Finding, events: Sequence[Event]) -> str:
    """The diagram as the address of an image, so that it goes wherever a picture may stand."""
    return "data:image/svg+xml;base64," + base64.b64encode(draw(finding, events).encode()).decode("ascii")


def draw(finding: Finding, events: Sequence[Event]) -> str:
    """The diagram as SVG text."""
    names = lanes_of(finding.rule)
    heights = [_height(event) for event in events]
    end = [(label, textwrap.wrap(text, ACROSS)) for label, text in _broken_promise(finding)]
    ending = LINE * sum(len(lines) for _, lines in end) + 34
    bottom = TOP + sum(heights) + 6
    drawing = Drawing(
        WIDTH,
        bottom + ending + 24,
        f"How {visible(finding.rule)} is broken",
        " ".join(_told(event, names) for event in events),
    )
    for lane, x in AT.items():
        drawing.line(x, 36, x, bottom, tone=lane, dashed=True)
        drawing.label(x, 32, names[lane], tone=lane, bold=True)
    y = float(TOP)
    for event, height in zip(events, heights, strict=True):
        _draw(drawing, event, y)
        y += height
    _draw_end(drawing, end, bottom, ending)
    return drawing.svg()


def _told(event: Event, names: Mapping[Lane, str]) -> str:
    return f"{event.number}. {names[event.lane]}: {event.text}" if event.lane else event.text


def _broken_promise(finding: Finding) -> list[tuple[str, str]]:
    told = {label: str(finding.evidence.get(label.lower(), "")) for label in ("Expected", "Observed")}
    found = [(label, visible(shorten(text, LONGEST))) for label, text in told.items()]
    return [(label, text) for label, text in found if text]


def _lines(event: Event) -> list[str]:
    return textwrap.wrap(shorten(event.text, LONGEST), LETTERS[event.lane] if event.lane else ACROSS) or [""]


def _height(event: Event) -> int:
    return LINE * len(_lines(event)) + GAP


def _draw(drawing: Drawing, event: Event, y: float) -> None:
    drawing.text(14, y + 13, event.number, tone="muted", size=12)
    message = DATA.search(event.text)
    if event.lane is Lane.PEER and message and event.text.startswith(("sends", "receives")):
        _draw_message(drawing, message[1], event.text.startswith("sends"), y)
    elif event.lane is Lane.PEER and event.text.startswith("accepts"):
        _draw_message(drawing, "connects", False, y)
    elif "the power goes out" in event.text:
        drawing.power_cut(AT[Lane.PROGRAM] - 70, AT[Lane.PROGRAM] + 70, y - 2)
        _write(drawing, event, y + 4, tone="danger", bold=True)
    else:
        _write(drawing, event, y, tone=event.lane or "muted")


def _draw_message(drawing: Drawing, words: str, to_program: bool, y: float) -> None:
    ends = (AT[Lane.PEER], AT[Lane.PROGRAM])
    start, end = ends if to_program else ends[::-1]
    drawing.text(sum(ends) / 2, y + 8, words[:34], tone="peer", anchor="middle", mono=True, size=13)
    drawing.arrow(start, y + 15, end, y + 15, tone=Lane.PEER if to_program else Lane.PROGRAM)


def _write(drawing: Drawing, event: Event, y: float, *, tone: str, bold: bool = False) -> None:
    x = AT[event.lane or Lane.PEER] + 8
    for number, line in enumerate(_lines(event)):
        drawing.text(x, y + 13 + LINE * number, line, tone=tone, size=13, bold=bold, halo=True)


def _draw_end(drawing: Drawing, rows: Sequence[tuple[str, Sequence[str]]], y: float, height: float) -> None:
    drawing.box(14, y + 8, WIDTH - 28, height, tone="danger")
    drawing.text(26, y + 28, "✗ Here the promise is broken", tone="danger", bold=True)
    for label, lines in rows:
        drawing.text(26, y + 28 + LINE, label, tone="danger", size=13, bold=True)
        for line in lines:
            y += LINE
            drawing.text(108, y + 28, line, size=13)
