"""Rules and steps: what a unit's modules declare, and the case in which one rule is judged.

A rule is one function in its step's module. Its docstring is the sentence that the learner reads. It gets a `Case`,
drives the learner's program in child processes, and calls `case.fail(...)` at the first promise that it sees broken;
if it returns, the promise was kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from graders.engine.processes import Child, Crew, Job
from graders.engine.program import Place, Program
from graders.engine.stops import At
from graders.engine.story import Lanes, Story
from graders.verdict import Exploration

RuleFunction = Callable[["Case"], None]


@dataclass(frozen=True)
class Rule:
    """One promise: its id within the step, the points it is worth, the sentence about it, and how it is judged."""

    step: str
    name: str
    points: float
    judge: RuleFunction
    explores: bool = False  # whether it ends the program at every stop; then it can replay a run, and draw a map

    @property
    def id(self) -> str:
        return f"{self.step}/{self.name}"

    @property
    def sentence(self) -> str:
        return " ".join((self.judge.__doc__ or "").split())


@dataclass
class Step:
    """One step of a unit: the public names that its section defines, and its rules in the order in which they are
    told.
    """

    name: str
    public: tuple[str, ...]
    rules: list[Rule] = field(default_factory=list)
    title: str = ""
    hints: tuple[str, ...] = ()

    def rule(self, points: float, name: str = "", *, explores: bool = False) -> Callable[[RuleFunction], RuleFunction]:
        """Declare the decorated function as a rule worth `points`; `name` where the function's own will not do."""

        def declare(function: RuleFunction) -> RuleFunction:
            self.rules.append(Rule(self.name, name or function.__name__, points, function, explores))
            return function

        return declare

    @property
    def max_score(self) -> float:
        return round(sum(rule.points for rule in self.rules), 6)


class Broken(Exception):
    """A promise is broken: what was expected, what was seen, why that happens, and what to look at."""

    def __init__(
        self, expected: str, observed: str, cause: str = "", look: str = "", where: Place | None = None
    ) -> None:
        super().__init__(observed)
        self.expected = expected
        self.observed = observed
        self.cause = cause
        self.look = look
        self.where = where
        self.story: Story | None = None  # where it is not the case's own: the story of one run of many
        self.crashes: tuple[At, ...] = ()  # where that run was ended, in one life each


def forged(observed: str) -> Broken:
    return Broken(
        "what is reported from the program's process comes from the judge's code in it",
        observed,
        "the program writes to the judge's socket, or has changed the judge's code",
        "descriptors that the program did not open; if it touches none, show this to your teacher",
    )


@dataclass(frozen=True)
class Raised:
    """An exception in the learner's process, as data."""

    type: str
    bases: tuple[str, ...]
    public: tuple[str, ...]
    message: str
    place: Place | None
    in_stand_in: bool = False

    def is_a(self, name: str) -> bool:
        """Whether it is an instance of the learner's public class `name`, or of the built-in exception `name`."""
        return name in self.public or f"builtins.{name}" in self.bases or name in self.bases

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}" if self.message else self.type
        return f"{text} ({self.place})" if self.place else text


@dataclass(frozen=True)
class Call:
    """What came of one call in the learner's process: `raised`, or where that is None, `returned`."""

    returned: Any = None
    raised: Raised | None = None

    def __str__(self) -> str:
        return f"raised {self.raised}" if self.raised else f"returned {self.returned!r}"

    @property
    def place(self) -> Place | None:
        return self.raised.place if self.raised else None

    def raised_a(self, name: str) -> bool:
        return self.raised is not None and self.raised.is_a(name)


@dataclass(frozen=True)
class Fate:
    """What happens if the program is ended in one state of the world: the stops of that state, what is in the store
    then, what the peer has seen and sent, and the promise that breaks, if one does.
    """

    stops: Sequence[At]
    left: str
    seen: bytes
    sent: bytes
    broken: Broken | None


class NotMet(Exception):
    """A replayed run did not come by a stop. The text names it."""


@dataclass
class Case:
    """One rule at work: the learner's program, a folder, seeded randomness, and the story so far."""

    crew: Crew
    program: Program
    seed: int
    rule: str
    thorough: bool = False
    replay: Sequence[At] | None = None  # the one run that an exploration is to make, instead of all
    fates: list[Fate] | None = None  # where an exploration is to write down what it finds in each state
    story: Story = field(default_factory=Story)
    exploration: Exploration = field(default_factory=Exploration)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed}/{self.rule}")
        self._folder: Path | None = None

    @property
    def folder(self) -> Path:
        """The case's folder, with the program in it."""
        if self._folder is None:
            self._folder = self.new_folder()
        return self._folder

    def new_folder(self) -> Path:
        """Another folder with the program in it, for a run that must not see the files of the others."""
        folder = self.crew.new_folder()
        (folder / self.program.name).write_text(self.program.text, encoding="utf-8")
        return folder

    def job(self, probe: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Job:
        """A job for a child: `probe` is `module:function`."""
        options.setdefault("folder", self.folder)
        options.setdefault("code_cache", str(self.crew.workshop.code / f"{self.program.digest}.code"))
        return Job(probe=probe, file=self.program.name, arguments=arguments or {}, **options)

    def start(self, probe: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Child:
        return self.crew.start(self.job(probe, arguments, **options))

    def run(self, probe: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Run a probe that asks nothing, to its end, and give back what it reports."""
        with self.start(probe, arguments, **options) as child:
            return self.result(child)

    def result(self, child: Child, answer: Callable[[dict[str, Any]], Mapping[str, Any] | None] | None = None) -> Any:
        """Wait for what the child's probe returns, answering what it asks on the way.

        A probe that raises, and a child that dies, hangs or cannot load the program, break the rule.
        """
        for message in child.messages():
            match message.get("event"):
                case "finished" | "loaded":
                    call = self.call(message)
                    if call.raised is not None:
                        self.fail("the program runs through", f"it raised {call.raised}", where=call.place)
                    return call.returned
                case "broke":
                    self.fail_untold(message)
                case _ if message.get("ask"):
                    reply = answer(message) if answer is not None else None
                    child.send(reply or {})
        self.fail_silent(child)

    def fail_untold(self, message: Mapping[str, Any]) -> NoReturn:
        """The child could not report what its probe has seen. Probes report what they catch, so it is not theirs."""
        self.fail(
            "what the program does can be told to the judge",
            f"its process could not report it: {message.get('error')}",
            "something in the process was replaced or used up: memory, the stack, or the modules of the judge",
        )

    def fail_forged(self, observed: str) -> NoReturn:
        """The child has reported what no probe reports."""
        raise forged(observed)

    def fail_silent(self, child: Child, expected: str = "the program goes on") -> NoReturn:
        """The child ended or hung without a report."""
        if child.timed_out:
            self.fail(
                expected,
                f"nothing happened for {child.job.patience:g} s, so it was ended",
                "an endless loop, or a wait that nothing ends",
                "loops without an end, and waits without a timeout",
            )
        if child.flooded:
            self.fail(expected, "it wrote too much for the judge to read", look="where it prints, and how often")
        self.fail(
            expected,
            f"the process ended by itself: {child.ending()}{_last_words(child)}",
            "something ended the whole process: os._exit, a signal, or a limit on memory, time or file size",
            "calls of os._exit and sys.exit, and how much memory and output the program uses",
        )

    def call(self, observed: Mapping[str, Any]) -> Call:
        """What a probe's `session.attempt` reported, as a Call with places in the learner's file."""
        raised = observed.get("raised")
        if raised is None:
            return Call(returned=observed.get("returned"))
        return Call(raised=self.raised(raised))

    def raised(self, data: Mapping[str, Any]) -> Raised:
        frames = list(data.get("where", ()))
        places = [self.program.place(int(line), str(function)) for line, function in frames]
        own = [place for place in places if place is not None]
        return Raised(
            type=str(data.get("type")),
            bases=tuple(map(str, data.get("bases", ()))),
            public=tuple(map(str, data.get("is", ()))),
            message=str(data.get("message", "")),
            place=own[-1] if own else None,
            in_stand_in=bool(places) and places[-1] is None,
        )

    def fail(
        self, expected: str, observed: str, cause: str = "", look: str = "", where: Place | None = None
    ) -> NoReturn:
        raise Broken(expected, observed, cause, look, where)

    def side_by_side(self, *parts: Callable[[Case], None]) -> None:
        """Judge parts that mostly wait at the same time, each in a case of its own; the first that fails is told."""

        def judge(part: Callable[[Case], None]) -> Broken | None:
            case = replace(self, story=Story())
            try:
                part(case)
            except Broken as broken:
                broken.story = broken.story or case.story
                return broken
            return None

        with ThreadPoolExecutor(len(parts)) as pool:
            for broken in pool.map(judge, parts):
                if broken is not None:
                    raise broken

    def lines_with(self, *words: str) -> Place | None:
        """The first line of the learner's that holds one of `words`: a place to point at when no exception points."""
        return self._first_with(words, self.program.all_rows)

    def own_line_with(self, *words: str) -> Place | None:
        """The same within the step's own section; of the whole file where that has none."""
        return self._first_with(words, self.program.own_rows) or self.lines_with(*words)

    def _first_with(self, words: Sequence[str], rows: range) -> Place | None:
        for row in self.program.code_rows:
            line = self.program.lines[row - 1]
            if row in rows and line.number is not None and any(word in line.text.partition("#")[0] for word in words):
                return Place(self.program.name, line.number, line.text)
        return None


def _last_words(child: Child) -> str:
    lines = child.standard_error().strip().splitlines()
    return f"; its last words were `{lines[-1][:200]}`" if lines else ""


@dataclass(frozen=True)
class Unit:
    """A unit: its name, the learner's file, its steps in order, what its lanes are called, and the reference's text."""

    name: str
    file_name: str
    steps: Sequence[Step]
    lanes: Lanes
    reference_path: Path
    preload: tuple[str, ...] = ()

    def reference(self) -> str:
        return self.reference_path.read_text(encoding="utf-8")

    def step(self, name: str) -> Step:
        """Raises KeyError for a name that is none of this unit's."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(f"no step of {self.name} is called {name}")
