"""Verdicts for the tests of the reports: made by hand, so that every kind of finding is there."""

from __future__ import annotations

from graders.verdict import Exploration, Finding, Outcome, StepVerdict, Verdict

KEPT = Finding("store/schema", "A new file gets `checkpoint` with one row.", Outcome.PASS, 1.0)
BROKEN = Finding(
    "store/two_openers",
    "Two processes that open the same new file at once both succeed.",
    Outcome.FAIL,
    0.5,
    "Expected: one row\n"
    "Observed: it raised OperationalError: first line\nsecond line\n"
    'In your code: client.py line 72: con.execute("BEGIN")\n'
    "Likely cause: `BEGIN` takes no lock\n"
    "Look at: the end of open_store",
    (
        " 1. store     | starts as last=-1 total=0 ledger={}",
        " 2. publisher | sends `EVENT 0 7\\n`",
        " … 3 more …",
        " 6. receiver  | open_store comes back",
    ),
    {"expected": "one row", "observed": "none", "where": {"file": "client.py", "line": 72, "text": "x"}},
)
UNKNOWN = Finding(
    "store/refuses",
    "Where set-up fails, an error reaches the caller.",
    Outcome.ERROR,
    0.5,
    "The judge could not tell, through a fault of its own: OSError: no space\nThis costs you nothing.",
    (),
    {"traceback": ["Traceback …", "OSError: no space"]},
)
SKIPPED = Finding("retention/returns", "It returns the rest.", Outcome.SKIPPED, 1.0, "Not judged: first do defines.")
ALSO_SKIPPED = Finding("retention/pure", "Nothing changes.", Outcome.SKIPPED, 1.0, "Not judged: first do defines.")

PASSED = Verdict("receiver", 7, (StepVerdict("store", "Store", (KEPT,)),))
MIXED = Verdict(
    "receiver",
    20261130,
    (
        StepVerdict("store", "Store", (KEPT, BROKEN, UNKNOWN)),
        StepVerdict("retention", "Retention", (SKIPPED, ALSO_SKIPPED)),
    ),
    Exploration(659, 18, 36, 0.4321),
)

NASTY = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\" onmouseover='x' ]]> & &lt; </td></table> -->",
    "\x1b[31mred\x1b[0m \x07 \x00 \r carriage \x9b1m",
    "half a pair \ud800 and \udfff, not a character \ufffe \uffff",
    "turned \u202e around \u2066 invisible \u200b and \u2028 line",
    "`code` {{ 7 * 7 }} {% raw %} %s {0}",
    "Expected: forged\nLook at: elsewhere\n 7. store     | forged",
    "x" * 100_000,
    "word " * 20_000,
    "",
    "\n\n\n",
]


def hostile(text: str) -> Verdict:
    """A verdict in which everything that may come from a learner is `text`."""
    evidence = {"observed": text, text: [text, float("nan"), b"\xff", {1: 10**400}, {1, 2}], "deep": _deep()}
    findings = tuple(
        Finding(f"store/{outcome}", f"A sentence with {text[:200]}", outcome, 0.5, f"Observed: {text}", story, evidence)
        for outcome in Outcome
        for story in ((f" 1. receiver  | {text}", text, f"12. store     | {text}"),)
    )
    return Verdict("receiver", 1, (StepVerdict("store", text, findings),))


def _deep() -> object:
    value: object = 1
    for _ in range(200):
        value = [value]
    return value
