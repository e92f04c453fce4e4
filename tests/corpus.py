"""The programs that test the judge: wrong ones, each with the rule that must catch it, and right ones in other styles.

A wrong program is the reference with one replacement, kept in `tests/wrong/<unit>/<step>/<name>.toml`:

    rule = "framing/line_end"     the rule that must catch it
    why = "what the learner did wrong, and what it would cost"
    old = '''...'''               stands exactly once in the reference, inside the step's section
    new = '''...'''

A right program is a whole file, `tests/right/<unit>/<name>.py`.

An attack is a whole file, too, or the steps that matter, in `tests/attacks/programs/<name>.py`: its docstring says what
it tries, and comments that begin with `#:` are TOML:

    #: steps = ["framing"]              the steps to judge it on
    #: denied = ["framing/accepts"]     rules that it must not pass; without any it only has to be harmless

`/nowhere/canary` in it becomes a folder outside the sandbox, with a secret in the file `file`. No attack may name a
real place that could suffer if it succeeded.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
REFERENCES = {"receiver": TESTS.parent / "solutions" / "client.py"}
MARKER = re.compile(r"^# %% (?P<step>[a-z_]+)[ \t]*\r?$", re.MULTILINE)
KEYS = {"rule", "why", "old", "new"}


@dataclass(frozen=True)
class WrongProgram:
    step: str
    name: str
    rule: str
    why: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.step}/{self.name}"

    def source(self, reference: str) -> str:
        """The reference with this one mistake in it."""
        found = reference.count(self.old)
        if found != 1:
            raise ValueError(f"{self}: the text to replace stands {found} times in the reference, not once")
        start = reference.index(self.old)
        begin, end = section(reference, self.step)
        if not begin <= start <= start + len(self.old) <= end:
            raise ValueError(f"{self}: the text to replace is not in the section {self.step!r}")
        return reference[:start] + self.new + reference[start + len(self.old) :]


@dataclass(frozen=True)
class RightProgram:
    name: str
    path: Path

    def __str__(self) -> str:
        return self.name

    def source(self) -> str:
        """The file's text with the line ends it really has."""
        return self.path.read_bytes().decode()


@dataclass(frozen=True)
class Attack:
    name: str
    source: str
    steps: tuple[str, ...]
    denied: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def section(source: str, step: str) -> tuple[int, int]:
    """Where the body of a step begins and ends."""
    markers = list(MARKER.finditer(source))
    for marker, following in zip(markers, [*markers[1:], None], strict=True):
        if marker["step"] == step:
            return marker.end(), following.start() if following else len(source)
    raise ValueError(f"the reference has no section {step!r}")


def steps(unit: str) -> tuple[str, ...]:
    """The steps of a unit, in the reference's order."""
    return tuple(marker["step"] for marker in MARKER.finditer(reference(unit)))


def reference(unit: str) -> str:
    return REFERENCES[unit].read_text(encoding="utf-8")


def wrong_programs(unit: str) -> tuple[WrongProgram, ...]:
    """All wrong programs of a unit, by step in the reference's order, then by name."""
    order = {step: position for position, step in enumerate(steps(unit))}
    found = [read_wrong(path) for path in (TESTS / "wrong" / unit).glob("*/*.toml")]
    return tuple(sorted(found, key=lambda program: (order.get(program.step, len(order)), program.step, program.name)))


def read_wrong(path: Path) -> WrongProgram:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    if data.keys() != KEYS or not all(isinstance(value, str) for value in data.values()):
        raise ValueError(f"{path}: these keys with strings are needed: {', '.join(sorted(KEYS))}")
    return WrongProgram(step=path.parent.name, name=path.stem, **data)


def right_programs(unit: str) -> tuple[RightProgram, ...]:
    """All right programs of a unit, by name."""
    return tuple(RightProgram(path.stem, path) for path in sorted((TESTS / "right" / unit).glob("*.py")))


def attacks() -> tuple[Attack, ...]:
    """All programs that attack the judge, by name."""
    return tuple(read_attack(path) for path in sorted((TESTS / "attacks" / "programs").glob("*.py")))


def read_attack(path: Path) -> Attack:
    source = path.read_text(encoding="utf-8")
    head = tomllib.loads("\n".join(row[2:] for row in source.splitlines() if row.startswith("#:")))
    return Attack(path.stem, source, tuple(head["steps"]), tuple(head["denied"]))
