"""Step `retention`: what a publisher can still replay from a log that it has cut, and what it must not pretend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graders.engine.rules import Call, Case, Step
from graders.receiver.framing import expect_apart
from graders.receiver.ledger import mixed_events
from graders.receiver.probes import REPLAY

STEP = Step("retention", public=("ResyncRequired", "replay"))

LOG_LIMIT = 128
BATCH_LIMIT = 16
Log = list[tuple[int, int]]


@dataclass(frozen=True)
class Row:
    """One call of `replay` and what must come of it: the contract's items, or an `error`; and why.

    `look` is what to look at where other items come back. `spoil`: whoever called it then empties the list that came
    back, which is theirs.
    """

    log: Log | tuple[tuple[int, int], ...]
    cursor: int
    limit: int
    error: str = ""
    why: str = ""
    look: str = "which items are greater than the cursor, and how many are given back"
    spoil: bool = False

    @property
    def told(self) -> str:
        return f"replay(log {span(self.log)}, cursor {self.cursor}, limit {self.limit})"

    @property
    def items(self) -> Log:
        return [item for item in self.log if item[0] > self.cursor][: self.limit]

    def arguments(self) -> dict[str, Any]:
        return {"log": self.log, "cursor": self.cursor, "limit": self.limit, "spoil": self.spoil}


@STEP.rule(0.5)
def returns(case: Case) -> None:
    """`replay` gives the first `limit` items after the cursor, in order, and `[]` when nothing is newer."""
    log = mixed_events(case, 20, 10)
    start = mixed_events(case, 5)
    rows = [(9, 16), (9, 1), (12, 3), (15, 16), (28, 16), (28, 1), (27, 5), (29, 4), (29, 16)]
    judge_rows(case, [Row(log, cursor, limit) for cursor, limit in rows])
    judge_rows(case, [Row(start, cursor, case.random.randint(1, 5)) for cursor in (-1, 0, 3, 4)])
    single, large = mixed_events(case, 1, 7), [mixed_events(case, 5, 2**bits - 2) for bits in (31, 32, 53, 63, 64)]
    rows_of_large = [Row(log, log[2][0] + 1, 4, why=LARGE) for log in large]
    judge_rows(case, [Row(single, cursor, 2) for cursor in (6, 7)] + rows_of_large)


LARGE = "a seq may have more digits than a float or a machine's word can hold: the grammar sets no limit but 64 bytes"


@STEP.rule(0.5)
def boundary(case: Case) -> None:
    """A cursor that needs a lost item, or is ahead of the log, raises `ResyncRequired`; one just before the log does
    not.
    """
    oldest = case.random.randint(10, 40)
    log = mixed_events(case, 12, oldest)
    cut = "the items between the cursor and the log are gone, and handing over the rest would lose them in silence"
    ahead = "the publisher has lost what this receiver holds"
    rows = [Row(log, oldest - 1, 4), Row(log, oldest + 11, 4)]
    rows += [Row(log, cursor, 4, "ResyncRequired", cut) for cursor in (oldest - 2, 0, -1)]
    rows += [Row(log, cursor, 4, "ResyncRequired", ahead) for cursor in (oldest + 12, oldest + 13, 10**6)]
    rows += [Row(mixed_events(case, 3, 1), -1, 4, "ResyncRequired", cut)]
    rows += [Row(mixed_events(case, 3), 3, 4, "ResyncRequired", ahead)]
    judge_rows(case, rows)


@STEP.rule(0.5)
def arguments(case: Case) -> None:
    """Arguments outside the contract raise `ValueError`, and are looked at before the cursor is judged."""
    log = mixed_events(case, 20, 10)
    holed = log[:5] + log[6:]
    full, over = mixed_events(case, LOG_LIMIT), mixed_events(case, LOG_LIMIT + 1)
    empty = "an empty log cannot tell a new stream from one that was cut"
    wrong = {
        "a number is missing": holed,
        "a number comes twice": log[:5] + log[4:],
        "two items are swapped": [*log[:4], log[5], log[4], *log[6:]],
        "the numbers fall": log[::-1],
        "the last number jumps": [*log, (40, 1)],
        "a number comes twice and one is missing, so that both ends fit": [*log[:4], log[3], *log[5:]],
    }
    rows = [Row(full, -1, BATCH_LIMIT), Row(full, LOG_LIMIT - 2, 1)]
    rows += [Row([], cursor, 4, "ValueError", empty) for cursor in (-1, 0, 5)]
    rows += [Row(over, cursor, 4, "ValueError", "more than 128 items") for cursor in (3, -1, LOG_LIMIT)]
    rows += [Row(log, 12, limit, "ValueError", "limit is outside 1..16") for limit in (0, -1, BATCH_LIMIT + 1, 1000)]
    rows += [Row(log, -2, 4, "ValueError", "the cursor is below -1")]
    rows += [Row(mixed_events(case, 4), -2, 4, "ValueError", "the cursor is below -1")]
    rows += [Row(items, 15, 4, "ValueError", why) for why, items in wrong.items()]
    first = ", which is looked at before the cursor"
    rows += [Row(log, cursor, 0, "ValueError", "limit is wrong" + first) for cursor in (0, 99)]
    rows += [Row(holed, cursor, 4, "ValueError", "the log is wrong" + first) for cursor in (0, 99)]
    rows += [Row(log, 29, 17, "ValueError", "limit is wrong, also where nothing is to be given back")]
    judge_rows(case, rows)


@STEP.rule(0.25)
def pure(case: Case) -> None:
    """The log may be a list or a tuple, and is the same afterwards; what was asked before changes nothing."""
    log, other = mixed_events(case, 20, 10), mixed_events(case, 20, 10)
    kept = "what the program keeps from one call to the next"
    foreign = "it was remembered from another log"
    changed = "the list that came back before was changed by its owner, and is handed out again"
    rows = [Row(kind(log), 14, 3) for kind in (list, tuple, list, tuple)]
    rows += [Row(list(log), cursor, 3) for cursor in (29, 9, 20, 9)]
    rows += [Row(list(other), cursor, 3, why=foreign, look=kept) for cursor in (14, 20)]
    rows += [Row(list(log), cursor, 16, why=changed, look=kept, spoil=True) for cursor in (12, 12, 9, 9)]
    logs = judge_rows(case, rows)
    refused = [Row(log, 5, 16), Row(log, 40, 16), Row(log[::-1], 14, 3), Row(log, 14, 0), Row(log, -2, 3)]
    logs += [report["log"] for report in ask(case, refused)]  # how they are refused is for other rules
    rows += refused
    for row, after in zip(rows, logs, strict=True):
        if after != row.log:
            case.story.peer(f"{row.told} is called")
            case.fail(
                "the log that was passed in stays as it was",
                f"afterwards it is {after}",
                "the program removes or sorts items of the caller's own log",
                "calls of pop, remove, clear, sort and reverse, and del on the log",
            )


@STEP.rule(0.25)
def resync_type(case: Case) -> None:
    """`ResyncRequired` is no `ValueError`, and none of the other exceptions."""
    log = mixed_events(case, 4, 10)
    (report,) = ask(case, [Row(log, 3, 4)])
    call = case.call(report["call"])
    if not call.raised_a("ResyncRequired") or call.raised_a("ValueError"):
        case.fail(
            "a cursor that the log no longer reaches raises ResyncRequired, which is no ValueError",
            f"replay {call}" + (", which is a ValueError" if call.raised_a("ValueError") else ""),
            "the caller could not tell `start again from a snapshot` from `your arguments are wrong`",
            "the line `class ResyncRequired(...)`",
            where=case.lines_with("class ResyncRequired") or call.place,
        )
    expect_apart(case, "ResyncRequired")


def ask(case: Case, rows: Sequence[Row]) -> list[Any]:
    """One child that calls `replay` for every row."""
    reports: list[Any] = case.run(REPLAY, {"calls": [row.arguments() for row in rows]})
    return reports


def judge_rows(case: Case, rows: Sequence[Row]) -> list[Any]:
    """Call `replay` for every row and judge each; gives back the logs as they are afterwards."""
    reports = ask(case, rows)
    for row, report in zip(rows, reports, strict=True):
        outcome = case.call(report["call"])
        if row.error:
            judge_error(case, row, outcome)
        elif outcome.raised is not None or outcome.returned != row.items:
            case.story.peer(f"{row.told} {outcome}")
            cause = row.why or likely_cause(row, outcome)
            case.fail(f"{row.told} returns {row.items}", f"it {outcome}", cause, row.look, where=outcome.place)
        if row.spoil:
            case.story.peer(f"{row.told} is called, and then the list that came back is emptied")
    return [report["log"] for report in reports]


def likely_cause(row: Row, outcome: Call) -> str:
    """Why the items that were returned are not the ones that are wanted."""
    if outcome.raised is not None:
        return ""
    returned = outcome.returned if isinstance(outcome.returned, list) else []
    if any(item not in row.log for item in returned):
        return "what is given back are not the log's own items, the pairs (seq, delta)"
    places = [row.log.index(item) for item in returned]
    if places and sorted(places) != list(range(min(places), min(places) + len(places))):
        return "an item in between is left out: items are chosen by something else than their seq"
    return "an off-by-one at the cursor or at the limit"


def judge_error(case: Case, row: Row, outcome: Call) -> None:
    confused = row.error == "ValueError" and outcome.raised_a("ResyncRequired")
    if not outcome.raised_a(row.error) or confused:
        case.story.peer(f"{row.told} {outcome}")
        look = "the checks at the start of replay, and their order"
        case.fail(f"{row.told} raises {row.error}: {row.why}", f"it {outcome}", look=look, where=outcome.place)


def span(log: Log | tuple[tuple[int, int], ...]) -> str:
    if not log:
        return "[]"
    return f"{log[0][0]}..{log[-1][0]} ({len(log)} items)"
