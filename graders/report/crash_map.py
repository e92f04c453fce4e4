"""The crash map: the learner's own source, and beside each line what happens if the power goes out there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import jinja2

from graders.engine.rules import Fate
from graders.engine.story import Lane, show_bytes
from graders.judge import CrashMap
from graders.report import html, parts
from graders.report.text import Paint, story_lines

WORDS = {"fine": "fine", "breaks": "BREAKS", "quiet": "", "none": "no code"}
MARKS = {"fine": "✓", "breaks": "✗", "quiet": "·", "none": " "}
LEGEND = "✓ fine, wherever in the line it happens   ✗ breaks a promise   · this run does not come by"


@dataclass(frozen=True)
class MapLine:
    """One line of the learner's file: `fine`, `breaks`, `quiet` (not reached) or `none`, and its stops and states."""

    number: int
    text: str
    mark: str
    stops: int
    states: Sequence[str]
    broken: str


def lines(found: CrashMap) -> Iterator[MapLine]:
    """The lines in the order of the learner's file."""
    stops: dict[int, list[tuple[Fate, int]]] = {}
    for fate in found.fates:
        for row in sorted({at[0] for at in fate.stops}):
            stops.setdefault(row, []).append((fate, sum(1 for at in fate.stops if at[0] == row)))
    code = found.program.statement_rows
    peer = parts.lanes_of(found.rule)[Lane.PEER]
    for row, line in enumerate(found.program.lines, start=1):
        if line.number is None:
            continue
        here = stops.get(row, [])
        broken = next((fate.broken for fate, _ in here if fate.broken is not None), None)
        mark = "breaks" if broken else "fine" if here else "quiet" if row in code else "none"
        yield MapLine(
            line.number,
            parts.visible(line.text),
            mark,
            sum(count for _, count in here),
            [_state(fate, peer) for fate, _ in here],
            parts.visible(f"expected {broken.expected}; observed {broken.observed}") if broken else "",
        )


def _state(fate: Fate, peer: str) -> str:
    traffic = [
        f"the {peer} has {verb} {show_bytes(data, 40)}"
        for verb, data in (("seen", fate.seen), ("sent", fate.sent))
        if data
    ]
    return parts.visible("; ".join([f"the next process finds {fate.left or 'what is told above'}", *traffic]))


def text(found: CrashMap, *, paint: Paint = lambda _, words: words, detail: bool = False) -> str:
    """The map for a terminal; `detail` adds the states of each line."""
    shown = [found.sentence, LEGEND, ""]
    for line in lines(found):
        count = f"{line.stops}" if line.stops else ""
        kind = {"fine": "pass", "breaks": "fail"}.get(line.mark, "faint")
        shown.append(f"{line.number:>4} {paint(kind, MARKS[line.mark])} {count:>3}  {line.text}".rstrip())
        if line.broken:
            shown.append(f"{'':>11} {paint('fail', 'breaks: ' + line.broken)}")
        if detail:
            shown += [f"{'':>11} {paint('faint', state)}" for state in line.states]
    if found.later is not None:
        shown += ["", paint("fail", "A second crash, while the program recovers from the first, breaks a promise:")]
        shown += [parts.visible(found.later.message), *story_lines(found.later)]
    return "\n".join([*shown, "", f"tried   {parts.explored(found.exploration)}", f"        {parts.LIMITS}"])


def page(found: CrashMap) -> str:
    """The map as a piece of HTML, for a notebook or a page of its own."""
    return _template().render(found=found, lines=list(lines(found)), marks=MARKS, words=WORDS, parts=parts)


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    return html.environment().get_template("crash_map.html.j2")
