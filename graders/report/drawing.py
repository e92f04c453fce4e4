"""One style of drawing for every picture of the lab: text, boxes and arrows on a light panel, written out as SVG.

The panel is part of the picture, so that it reads the same in a light and in a dark theme (an image inside a page
cannot know the notebook's theme). Every colour below reaches a contrast of at least 4.5 to 1 on the panel and on the
pale fills, no text is smaller than 12 pixels, and colour never carries a meaning alone: lanes have names, a power cut
is a jagged line with words beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

PANEL = "#fffdf8"
INKS = {
    "ink": "#1f2933",
    "muted": "#4a5560",
    "peer": "#1d4e89",
    "program": "#6b3fa0",
    "store": "#17603f",
    "danger": "#a61b1b",
}
FILLS = {
    "ink": "#f3f1ec",
    "muted": "#f3f1ec",
    "peer": "#e6effa",
    "program": "#f1ebf9",
    "store": "#e4f3ec",
    "danger": "#fbe9e7",
}
SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


@dataclass
class Drawing:
    """A picture in the making. Lengths are pixels; `title` is its name, `desc` says in words what the picture shows."""

    width: int
    height: int
    title: str
    desc: str
    parts: list[str] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        tone: str = "ink",
        size: int = 14,
        anchor: str = "start",
        bold: bool = False,
        mono: bool = False,
        halo: bool = False,
    ) -> None:
        """Write one line of text with its baseline at `y`; a halo in the panel's colour keeps it apart from a line."""
        weight = ' font-weight="600"' if bold else ""
        around = f' stroke="{PANEL}" stroke-width="5" paint-order="stroke"' if halo else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" fill="{INKS[tone]}" font-size="{size}" text-anchor="{anchor}"'
            f' font-family="{MONO if mono else SANS}"{weight}{around}'
            f' xml:space="preserve">{escape(words)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, *, tone: str = "ink", dashed: bool = False) -> None:
        """A rounded rectangle in the pale fill of `tone`; a dashed one is empty: something that is not there."""
        fill = "none" if dashed else FILLS[tone]
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}"'
            f' stroke="{INKS[tone]}" stroke-width="1.5"{dash}/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, *, tone: str = "ink", dashed: bool = False) -> None:
        dash = ' stroke-dasharray="4 5"' if dashed else ""
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{INKS[tone]}" stroke-width="1.5"{dash}/>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, *, tone: str = "ink") -> None:
        """A line with a head at its second end; it is drawn level or upright, which is all that the pictures need."""
        self.line(x1, y1, x2, y2, tone=tone)
        if y1 == y2:
            back = -8 if x2 > x1 else 8
            points = f"{x2:g},{y2:g} {x2 + back:g},{y2 - 5:g} {x2 + back:g},{y2 + 5:g}"
        else:
            back = -8 if y2 > y1 else 8
            points = f"{x2:g},{y2:g} {x2 - 5:g},{y2 + back:g} {x2 + 5:g},{y2 + back:g}"
        self.parts.append(f'<polygon points="{points}" fill="{INKS[tone]}"/>')

    def cross(self, x: float, y: float, *, tone: str = "danger") -> None:
        self.line(x - 6, y - 6, x + 6, y + 6, tone=tone)
        self.line(x - 6, y + 6, x + 6, y - 6, tone=tone)

    def power_cut(self, x1: float, x2: float, y: float) -> None:
        """A jagged line from `x1` to `x2`: here the power goes out."""
        teeth = int((x2 - x1) // 10)
        points = " ".join(f"{x1 + 10 * tooth:g},{y + (5 if tooth % 2 else -5):g}" for tooth in range(teeth + 1))
        self.parts.append(f'<polyline points="{points}" fill="none" stroke="{INKS["danger"]}" stroke-width="2"/>')

    def label(
        self, x: float, y: float, words: str, *, tone: str = "ink", mono: bool = False, bold: bool = False
    ) -> None:
        """A box of its text's width around (x, y), for a word that stands on a line."""
        width = 22 + len(words) * (8.5 if mono else 7.6)
        self.box(x - width / 2, y - 14, width, 28, tone=tone)
        self.text(x, y + 5, words, tone=tone, anchor="middle", mono=mono, bold=bold)

    def svg(self) -> str:
        """The whole picture as SVG text. It needs nothing from outside: no script, no style sheet, no web font."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title desc" width="{self.width}"'
                f' height="{self.height}" viewBox="0 0 {self.width} {self.height}">',
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="desc">{escape(self.desc)}</desc>',
                f'<rect x="1" y="1" width="{self.width - 2}" height="{self.height - 2}" rx="12" fill="{PANEL}"'
                f' stroke="#c9c4b8"/>',
                *self.parts,
                "</svg>",
                "",
            ]
        )


@dataclass(frozen=True)
class Message:
    """Bytes or a call from one lane to another; a lost one does not arrive."""

    sender: str
    receiver: str
    words: str
    lost: bool = False


@dataclass(frozen=True)
class PowerCut:
    """One lane loses its power; `words` say what is left."""

    lane: str
    words: str


Row = Message | PowerCut

ROW = 46


def sequence(drawing: Drawing, lanes: Sequence[str], names: Sequence[str], rows: Sequence[Row], top: float) -> float:
    """Draw rows, one below the other, between lanes that stand side by side; returns where the lanes end.

    `lanes` are tones and serve as keys in the rows, `names` are what a reader sees.
    """
    gap = (drawing.width - 240) / (len(lanes) - 1)
    at = {lane: 120 + gap * number for number, lane in enumerate(lanes)}
    bottom = top + 34 + ROW * len(rows) + 10
    for lane, name in zip(lanes, names, strict=True):
        drawing.line(at[lane], top + 16, at[lane], bottom, tone=lane, dashed=True)
        drawing.label(at[lane], top + 14, name, tone=lane, bold=True)
    for number, row in enumerate(rows):
        _draw_row(drawing, at, row, top + 34 + ROW * (number + 0.75))
    return bottom


def _draw_row(drawing: Drawing, at: dict[str, float], row: Row, y: float) -> None:
    match row:
        case Message(sender, receiver, words, lost):
            start, end = at[sender], at[receiver]
            if lost:
                drawing.line(start, y, (start + end) / 2, y, tone=sender)
                drawing.cross((start + end) / 2, y)
            else:
                drawing.arrow(start, y, end, y, tone=sender)
            drawing.text((start + end) / 2, y - 8, words, tone=sender, anchor="middle", mono=True)
        case PowerCut(lane, words):
            drawing.power_cut(at[lane] - 60, at[lane] + 60, y - 4)
            drawing.text(at[lane] + 70, y + 1, words, tone="danger", bold=True, halo=True)
