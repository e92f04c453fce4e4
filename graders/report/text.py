"""A verdict as text, for a terminal and for a notebook without HTML: what is broken first, the sum of it last.

The same verdict gives the same text, always. The text itself has no colours; `paint` may add them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

from graders.engine.story import Lane
from graders.report import parts
from graders.report.parts import Row
from graders.verdict import Finding, Outcome, StepVerdict, Verdict

Paint = Callable[[str, str], str]  # a kind (an outcome, "strong" or "faint") and a text, to the text in colour

WIDTH = 100
LANE_WIDTH = 15
WORDS = {Outcome.PASS: "pass", Outcome.FAIL: "FAIL", Outcome.ERROR: "ERROR", Outcome.SKIPPED: "skip"}


def render(verdict: Verdict, *, file: str | None = None, width: int = WIDTH, paint: Paint | None = None) -> str:
    """The whole report. `file` is how the reader names the file on a command line (default: the unit's own name)."""
    page = _Page(width, paint or (lambda _, text: text))
    file = file or parts.file_name(verdict)
    lines = [line for step in verdict.steps for line in page.step(step, verdict, file)]
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join([*lines, "", *page.summary(verdict, file)])


def story_lines(finding: Finding) -> list[str]:
    """The story alone, in its three columns."""
    return list(_Page(WIDTH, lambda _, text: text).story(finding))


def replayed(finding: Finding) -> str:
    """One run alone: its story, and what came of it."""
    page = _Page(WIDTH, lambda _, text: text)
    story = [*page.wrap(finding.sentence, ""), *page.story(finding), ""]
    if finding.outcome is Outcome.PASS:
        return "\n".join([*story, "kept    the promise is kept in this run"])
    return "\n".join([*story, *(line for row in parts.rows(finding) for line in page.row(row))])


class _Page:
    """Lays out lines of a given width."""

    def __init__(self, width: int, paint: Paint) -> None:
        self.width = max(width, 50)
        self.paint = paint

    def step(self, step: StepVerdict, verdict: Verdict, file: str) -> Iterator[str]:
        word = self.paint(step.outcome, f"{WORDS[step.outcome]:<5}")
        score = f"{parts.points(step.score):>4} of {parts.points(step.max_score)}"
        name = self.paint("strong", f"{parts.visible(step.step):<16}")
        yield f"{word} {name} {score:<10} {parts.count(step)}"
        for finding in parts.with_outcome(step, Outcome.ERROR):
            yield from self.judge_error(finding)
        for finding in parts.with_outcome(step, Outcome.FAIL):
            yield from self.broken(finding)
            if again := parts.replay_command(verdict, file, finding):
                yield ""
                yield f"    {self.paint('faint', 'This run again')}  {again}"  # in one line, to be copied
        if skipped := parts.with_outcome(step, Outcome.SKIPPED):
            yield ""
            yield from self.wrap(f"skipped: {parts.names(skipped)}. {parts.why_skipped(skipped)}", "  ")
        if step.outcome is not Outcome.PASS:
            yield ""

    def broken(self, finding: Finding) -> Iterator[str]:
        yield ""
        points = f"0 of {parts.points(finding.max_points)} points" if finding.max_points else "everything rests on it"
        yield f"  {self.paint(Outcome.FAIL, 'broken')} {self.paint('strong', parts.visible(finding.rule))}, {points}"
        yield from self.wrap(parts.visible(finding.sentence), "  ")
        yield ""
        for row in parts.rows(finding):
            yield from self.row(row)
        yield from self.story(finding)

    def judge_error(self, finding: Finding) -> Iterator[str]:
        yield ""
        rule = self.paint("strong", parts.visible(finding.rule))
        yield f"  {self.paint(Outcome.ERROR, 'THE JUDGE COULD NOT TELL')} {rule}: no points lost"
        for row in parts.rows(finding):
            yield from self.row(row)
        yield from self.story(finding)

    def row(self, row: Row) -> Iterator[str]:
        label = f"    {row.label:<14}" if row.label else "    "
        lines = self.wrap(row.text, label, " " * len(label))
        yield lines[0].replace(row.label, self.paint("faint", row.label), 1) if row.label else lines[0]
        yield from lines[1:]

    def story(self, finding: Finding) -> Iterator[str]:
        """Three columns side by side, time downwards; an event's text may run over the columns to its right."""
        events, names = parts.events(finding), parts.lanes_of(finding.rule).values()
        if not events:
            return
        yield ""
        yield "    " + self.paint("faint", "    " + "".join(f"{lane:<{LANE_WIDTH}}" for lane in names).rstrip())
        for event in events:
            if event.lane:
                bars = f"│{' ' * (LANE_WIDTH - 1)}" * list(Lane).index(event.lane)
                yield from self.wrap(event.text, f"    {event.number:>2}. {bars}", f"        {bars}")
            else:
                yield from self.wrap(event.text, "        ")

    def summary(self, verdict: Verdict, file: str) -> Iterator[str]:
        """The last lines, which a terminal shows without scrolling."""
        every = [finding for step in verdict.steps for finding in step.rules]
        outcome = Outcome.ERROR if verdict.broken else Outcome.PASS if verdict.passed else Outcome.FAIL
        score = f"{parts.points(verdict.score)} of {parts.points(verdict.max_score)}"
        yield from self.item("score", self.paint(outcome, score))
        for outcome, label in ((Outcome.FAIL, "broken"), (Outcome.ERROR, "unknown")):
            rules = ", ".join(parts.visible(finding.rule) for finding in every if finding.outcome is outcome)
            if rules:
                yield from self.item(label, rules)
        if verdict.broken:
            yield from self.item("", "The judge itself failed there. That costs no points, and is not your mistake.")
        if tried := parts.explored(verdict.exploration):
            yield from self.item("tried", tried)
            yield from self.item("", parts.LIMITS)
        yield from self.item("seed", str(verdict.seed))
        yield f"{'again':<8}{parts.command(verdict, file)}"  # in one line, to be copied

    def item(self, label: str, text: str) -> list[str]:
        return self.wrap(text, f"{label:<8}", " " * 8)

    def wrap(self, text: str, first: str, rest: str | None = None) -> list[str]:
        """The text in lines of the page's width, `first` before its first line and `rest` before the others."""
        lines = [
            piece
            for line in text.split("\n")
            for piece in textwrap.wrap(
                line, max(self.width - len(first), 30), break_on_hyphens=False, replace_whitespace=False
            )
            or [""]
        ]
        rest = first if rest is None else rest
        return [f"{first if number == 0 else rest}{line}".rstrip() for number, line in enumerate(lines)]
