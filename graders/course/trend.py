"""How a class gets on: attempts by day, and the mean points of all latest attempts, in numbers and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

from graders.course.history import Entry
from graders.report.drawing import Drawing
from graders.report.parts import points

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT = 70, 730  # between them the days
BARS, LINE = (60, 190), (240, 350)  # top and bottom of either half
WIDEST_BAR = 36
LABEL = 60  # from the middle of one day's name to the middle of the next, at least


@dataclass(frozen=True)
class Day:
    """One day on which something was graded; `mean` is over all who have been graded until its end."""

    day: date
    attempts: int
    students: int
    mean: float


def by_day(histories: Iterable[Sequence[Entry]]) -> list[Day]:
    """The days with attempts, in order."""
    entries = sorted(
        ((entry.time, student, entry.total) for student, own in enumerate(histories) for entry in own),
    )
    attempts: dict[date, int] = {}
    latest: dict[int, float] = {}
    means: dict[date, tuple[int, float]] = {}
    for time, student, total in entries:
        day = time.date()
        attempts[day] = attempts.get(day, 0) + 1
        latest[student] = total
        means[day] = len(latest), sum(latest.values()) / len(latest)
    return [Day(day, number, *means[day]) for day, number in attempts.items()]


def draw(days: Sequence[Day], most: float) -> str:
    """The picture; `most` is the greatest number of points. Nothing in it comes from a student."""
    first, last = days[0], days[-1]
    drawing = Drawing(
        WIDTH,
        HEIGHT,
        "Attempts and points over time",
        f"From {first.day} to {last.day}: {sum(day.attempts for day in days)} attempts, the mean of the latest ones "
        f"from {last_digit(first.mean)} to {last_digit(last.mean)} of {points(most)} points.",
    )
    at = _places(days)
    _draw_attempts(drawing, days, at)
    _draw_means(drawing, days, at, most)
    _name_days(drawing, at)
    return drawing.svg()


def last_digit(number: float) -> str:
    """A mean, to one digit behind the point."""
    return points(round(number, 1))


def _places(days: Sequence[Day]) -> Mapping[date, float]:
    """Where each day stands: in proportion to time, half a bar away from the edges."""
    first, last = days[0].day.toordinal(), days[-1].day.toordinal()
    from_, to = LEFT + WIDEST_BAR, RIGHT - WIDEST_BAR
    if first == last:
        return {days[0].day: (from_ + to) / 2}
    return {day.day: from_ + (to - from_) * (day.day.toordinal() - first) / (last - first) for day in days}


def _draw_attempts(drawing: Drawing, days: Sequence[Day], at: Mapping[date, float]) -> None:
    top, bottom = BARS
    highest = max(day.attempts for day in days)
    closest = min((at[b.day] - at[a.day] for a, b in pairwise(days)), default=WIDEST_BAR / 0.8)
    width = max(min(WIDEST_BAR, closest * 0.8), 1)
    drawing.text(24, 30, "Attempts by day", bold=True)
    _axis(drawing, top, bottom, str(highest))
    for day in days:
        height = (bottom - top) * day.attempts / highest
        drawing.box(at[day.day] - width / 2, bottom - height, width, height, tone="peer")
        if width >= 20:
            drawing.text(at[day.day], bottom - height - 5, str(day.attempts), size=12, anchor="middle")


def _draw_means(drawing: Drawing, days: Sequence[Day], at: Mapping[date, float], most: float) -> None:
    top, bottom = LINE
    places = [(at[day.day], bottom - (bottom - top) * min(max(day.mean / most, 0), 1)) for day in days]
    drawing.text(24, top - 22, "Mean points of everybody's latest attempt", bold=True)
    _axis(drawing, top, bottom, points(most))
    for (x1, y1), (x2, y2) in pairwise(places):
        drawing.line(x1, y1, x2, y2, tone="store")
    for x, y in places:
        drawing.box(x - 3, y - 3, 6, 6, tone="store")
    for number in sorted({0, len(days) - 1}):
        x, y = places[number]
        below = y - 10 < top
        drawing.text(x, y + 18 if below else y - 10, last_digit(days[number].mean), size=12, anchor="middle", halo=True)


def _name_days(drawing: Drawing, at: Mapping[date, float]) -> None:
    named = float(-LABEL)
    for day, x in at.items():
        if x - named >= LABEL:
            drawing.text(x, HEIGHT - 20, day.strftime("%d %b"), size=12, anchor="middle")
            named = x


def _axis(drawing: Drawing, top: float, bottom: float, most: str) -> None:
    drawing.line(LEFT, bottom, RIGHT, bottom, tone="muted")
    drawing.line(LEFT, top, LEFT, bottom, tone="muted")
    drawing.text(LEFT - 8, top + 5, most, tone="muted", size=12, anchor="end")
    drawing.text(LEFT - 8, bottom + 4, "0", tone="muted", size=12, anchor="end")
