"""Step `framing`: one line of bytes is exactly the message that both sides agreed on, or it is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graders.engine.rules import Call, Case, Step
from graders.engine.story import show_bytes
from graders.engine.wire import Opaque
from graders.receiver.probes import PARSE, PARSED_EQUALS, RELATED

STEP = Step("framing", public=("ProtocolError", "parse_line"))

LONGEST = 64  # bytes, LF included
OTHER_WHITE_SPACE = b"\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0"  # what `\s`, split() and isspace() take, in bytes or as text
EXCEPTIONS = ("ProtocolError", "Conflict", "Gap", "ResyncRequired")


@STEP.rule(0.5)
def accepts(case: Case) -> None:
    """Every line of the grammar is taken, and gives `(seq, delta)`."""
    seqs = [0, 1, 9, 10, 42, 1_000_000, 2**31, 2**63, *(case.random.randrange(10**9) for _ in range(6))]
    deltas = [0, 1, -1, 7, 10, -10, 999, 1000, -999, -1000, *(case.random.randrange(-1000, 1001) for _ in range(6))]
    pairs = [(seq, case.random.choice(deltas)) for seq in seqs] + [
        (case.random.choice(seqs), delta) for delta in deltas
    ]
    expect_values(case, {b"EVENT %d %d\n" % pair: pair for pair in pairs})


@STEP.rule(0.5)
def numbers(case: Case) -> None:
    """A number is written in one way only: no leading zero, `+`, `-0`, underscore, foreign digit or missing digit."""
    expect_refusals(
        case,
        {
            b"EVENT 00 7\n": "a leading zero in seq",
            b"EVENT 01 7\n": "a leading zero in seq",
            b"EVENT 0 07\n": "a leading zero in delta",
            b"EVENT 0 -07\n": "a leading zero in delta",
            b"EVENT 0 00\n": "a leading zero in delta",
            b"EVENT +1 7\n": "`+` in seq",
            b"EVENT 0 +7\n": "`+` in delta",
            b"EVENT 0 -0\n": "`-0`",
            b"EVENT 0 --7\n": "two minus signs",
            b"EVENT 0 7-\n": "a minus sign behind the digits",
            b"EVENT -1 7\n": "a negative seq",
            b"EVENT -0 7\n": "`-0` in seq",
            b"EVENT 1_0 7\n": "an underscore in seq",
            b"EVENT 0 1_0\n": "an underscore in delta",
            b"EVENT 0x1 7\n": "hexadecimal",
            b"EVENT 0 1e2\n": "an exponent",
            b"EVENT 0 7.0\n": "a decimal point",
            b"EVENT a 7\n": "a letter for seq",
            b"EVENT 0 b\n": "a letter for delta",
            b"EVENT 0 -\n": "a minus sign without digits",
            "EVENT \u0663 7\n".encode(): "a digit that is not ASCII",
            "EVENT 0 \u0667\n".encode(): "a digit that is not ASCII",
            "EVENT 1\u0663 7\n".encode(): "a digit that is not ASCII, behind one that is",
            "EVENT 0 1\u0667\n".encode(): "a digit that is not ASCII, behind one that is",
            "EVENT 0 -\uff17\n".encode(): "a full-width digit",
            "EVENT 0 \u00b2\n".encode(): "a superscript digit",
            b"EVENT 0 \xb2\n": "a byte above 127",
        },
        "`int()` takes spellings that the contract does not",
        "how the digits are checked before `int()` sees them",
    )


@STEP.rule(0.5, name="range")
def delta_range(case: Case) -> None:
    """A delta outside -1000..1000 is refused."""
    beyond = {
        b"EVENT 0 %d\n" % delta: "a delta out of range" for delta in (1001, -1001, 1999, 9999, -9999, 10_000, -10_000)
    }
    far = {b"EVENT 3 %d\n" % (10**9 + case.random.randrange(1000)): "a delta out of range"}
    expect_refusals(case, beyond | far, "the delta's value is not compared with the limits", "the check of -1000..1000")
    expect_values(case, {b"EVENT 0 1000\n": (0, 1000), b"EVENT 0 -1000\n": (0, -1000)})


@STEP.rule(0.25)
def spacing(case: Case) -> None:
    """Exactly one space stands between the three parts, and none anywhere else."""
    expect_refusals(
        case,
        {
            b"EVENT  0 7\n": "two spaces",
            b"EVENT 0  7\n": "two spaces",
            b" EVENT 0 7\n": "a space in front",
            b"EVENT 0 7 \n": "a space at the end",
            b"EVENT\t0 7\n": "a tab",
            b"EVENT 0\t7\n": "a tab",
            b"EVENT 0 7\t\n": "a tab at the end",
            **{b"EVENT%c0 7\n" % byte: "other white space" for byte in OTHER_WHITE_SPACE},
            **{b"EVENT 0%c7\n" % byte: "other white space" for byte in OTHER_WHITE_SPACE},
            b"EVENT 0\xc2\xa07\n": "a no-break space",
            b"EVENT0 7\n": "a missing space",
            b"EVENT 07\n": "a missing part",
            b"EVENT 0 \n": "a missing delta",
            b"EVENT 0\n": "a missing delta",
            b"EVENT\n": "missing numbers",
            b"EVENT 0 7 9\n": "a fourth part",
        },
        "`split()` and `strip()` without arguments forgive white space",
        "how the line is cut into its parts",
    )


@STEP.rule(0.5)
def line_end(case: Case) -> None:
    """A line ends with one LF: not with CRLF, not with two, not without, and an empty line is no message."""
    expect_refusals(
        case,
        {
            b"EVENT 0 7\r\n": "CRLF",
            b"EVENT 0 7\r": "CR alone",
            b"EVENT 0 7": "no LF",
            b"EVENT 0 7\n\n": "two LFs",
            b"\nEVENT 0 7\n": "an LF in front",
            b"EVENT 0 7\nEVENT 1 7\n": "two messages",
            b"EVENT 0 7\n\r": "something behind the LF",
            b"EVENT 0 7\n ": "something behind the LF",
            b"EVENT 0 7\n\x00": "a NUL byte behind the LF",
            b"EVENT 0\n7\n": "an LF in the middle",
            b"\n": "an empty line",
            b"\r\n": "an empty line with CRLF",
            b"": "no bytes at all",
        },
        "the line end is stripped or taken with `$`, which also matches before a last LF",
        "what the program does with the last byte",
    )


@STEP.rule(0.25)
def length(case: Case) -> None:
    """A line of 64 bytes, LF included, is taken; one of 65 is refused."""
    deltas = (7, -7, 0, 1000, -1000)
    short = {b"EVENT 3 %d\n" % delta: (3, delta) for delta in deltas}
    calls = zip(short.items(), parse(case, list(short)), strict=True)
    taken = [pair[1] for (line, pair), call in calls if is_read_as(case, line, pair, call)]  # else it is not the length
    longest = dict(pair for delta in taken for pair in lines_of_length(case, LONGEST, delta))
    expect_values(case, longest, "the limit is off by one, or counts what is no byte", "the check of 64 bytes")
    longer = {line: "65 bytes" for delta in deltas for line, _ in lines_of_length(case, LONGEST + 1, delta)}
    longer |= {line: f"{size} bytes" for size in (66, 128, 209) for line, _ in lines_of_length(case, size, 7)}
    expect_refusals(case, longer, "the length is not checked, or off by one", "the check of 64 bytes")


def lines_of_length(case: Case, size: int, delta: int) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """For every first digit a line of the grammar, but for its length of `size` bytes, and what it says."""
    digits = size - len(b"EVENT  %d\n" % delta)
    for first in range(1, 10):
        seq = first * 10 ** (digits - 1) + case.random.randrange(1000)
        yield b"EVENT %d %d\n" % (seq, delta), (seq, delta)


@STEP.rule(0.25)
def keyword(case: Case) -> None:
    """The line starts with `EVENT` in capitals, and holds nothing that the grammar does not name."""
    expect_refusals(
        case,
        {
            b"event 0 7\n": "lower case",
            b"Event 0 7\n": "mixed case",
            b"EVENTS 0 7\n": "another word",
            b"EVEN 0 7\n": "another word",
            b"ACK 0 7\n": "another word",
            b"RESUME 0\n": "another message",
            b"0 7\n": "no word",
            b"XEVENT 0 7\n": "something in front",
            b"EVENT 0 7\x00\n": "a NUL byte",
            b"\x00EVENT 0 7\n": "a NUL byte in front",
            b"EVENT 0 7;\n": "something behind",
            b"\xff\xfe\x00\x01\n": "bytes that are no text",
            b"\xef\xbb\xbfEVENT 0 7\n": "a byte order mark",
            b"EVENT 0 7 # comment\n": "a comment",
            b"EVENT 0 7 #a\n": "a comment",
            b"EVENT 0 7 a\n": "a word behind",
        },
        "only a part of the line is compared",
        "the check of the whole line, from its first byte to its last",
    )


@STEP.rule(0.25)
def error_type(case: Case) -> None:
    """What is refused raises `ProtocolError`, which is a `ValueError` and none of the other exceptions."""
    expect_refusals(
        case, {b"\n": "an empty line", b"EVENT \xff 7\n": "bytes that are no text", b"EVENT 0 x\n": "a letter"}
    )
    (call,) = parse(case, [b"nonsense\n"])
    if not call.raised_a("ValueError"):
        case.fail(
            "ProtocolError is a subclass of ValueError",
            f"parse_line {call}, which is no ValueError",
            look="the line `class ProtocolError(...)`",
            where=case.lines_with("class ProtocolError"),
        )
    expect_apart(case, "ProtocolError")


def parse(case: Case, lines: Sequence[bytes]) -> list[Call]:
    return [case.call(report) for report in case.run(PARSE, {"lines": list(lines)})]


def expect_values(
    case: Case,
    table: Mapping[bytes, tuple[int, int]],
    refused: str = "the grammar in the program is narrower than the contract's",
    look: str = "how seq and delta are read",
) -> None:
    """Each line of `table` gives its pair; `refused` is the likely cause where it raises."""
    for (line, pair), call in zip(table.items(), parse(case, list(table)), strict=True):
        if not is_read_as(case, line, pair, call):
            case.story.program(f"parse_line({line!r}) {call}")
            cause = refused if call.raised else ""
            case.fail(f"parse_line({line!r}) returns {pair}", f"it {call}", cause, look, where=call.place)


def is_read_as(case: Case, line: bytes, pair: tuple[int, int], call: Call) -> bool:
    return call.raised is None and (call.returned == pair or compares_equal(case, line, pair, call))


def compares_equal(case: Case, line: bytes, pair: tuple[int, int], call: Call) -> bool:
    """Whether an object of the learner's own compares equal to `pair`, and to no other pair."""
    if not isinstance(call.returned, Opaque):
        return False
    seq, delta = pair
    # Each number stands beside its neighbour as often as not, and either comes first: an object that looks at all the
    # candidates learns nothing from them.
    pairs = [(one, other) for one in (seq, seq ^ 1) for other in (delta, delta ^ 1)]
    candidates = [*pairs, *(pair[::-1] for pair in pairs)]
    case.random.shuffle(candidates)
    answers = case.run(PARSED_EQUALS, {"line": line, "candidates": candidates})
    return bool(answers == [candidate == pair for candidate in candidates])


def expect_refusals(case: Case, table: Mapping[bytes, str], cause: str = "", look: str = "") -> None:
    """Each line of `table` raises ProtocolError; the values say what is wrong with it."""
    for (line, wrong), call in zip(table.items(), parse(case, list(table)), strict=True):
        if call.raised_a("ProtocolError"):
            continue
        case.story.program(f"parse_line({show_bytes(line)}) {call}")
        if call.raised is not None:
            cause = "an error of another kind comes out where the program did not foresee this line"
        case.fail(
            f"parse_line({line[:80]!r}) raises ProtocolError: {wrong}", f"it {call}", cause, look, where=call.place
        )


def expect_apart(case: Case, name: str) -> None:
    """`name` is neither a subclass nor a base of another exception of the contract."""
    for one, other in case.run(RELATED, {"names": list(EXCEPTIONS)}):
        if name in (one, other):
            case.fail(
                "the exceptions of the contract can be told apart",
                f"{one} is a subclass of {other}, so `except {other}` catches both",
                look=f"the lines `class {one}` and `class {other}`; a common base of your own is fine",
                where=case.lines_with(f"class {one}"),
            )
