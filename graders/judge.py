"""Judging a file: every rule of every step asked for, each in child processes of its own.

A step is judged on its own. Where an earlier section of the learner's file fails, the reference's section stands in for
it, so that one mistake costs one step.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import sqlite3
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from graders.engine import sandbox as sandboxes
from graders.engine import sections
from graders.engine.processes import Crew, JudgeBroke, Method, ServerGone, Workshop
from graders.engine.program import Program, compose
from graders.engine.rules import Broken, Case, Fate, Rule, Step, Unit
from graders.engine.sections import LearnerFile
from graders.engine.stops import At, name_of
from graders.engine.store import Locked, Unreadable
from graders.registry import unit as find_unit
from graders.verdict import JUDGE_VERSION, Exploration, Finding, Outcome, StepVerdict, Verdict

Progress = Callable[[str, int, int], None]
RULES_AT_ONCE = 8  # rules wait more than they compute
LONGEST_FILE = 1 << 20  # bytes of source; no hand-written program comes near
LOADS = "graders.engine.probes:public_names"


def todays_seed() -> int:
    """The seed where none is given: the date as a number, so that a day's verdicts on one file are all the same."""
    return int(f"{datetime.date.today():%Y%m%d}")


def judge(
    source: str,
    *,
    unit: str = "receiver",
    name: str | None = None,
    steps: Sequence[str] | None = None,
    seed: int | None = None,
    method: Method | None = None,
    progress: Progress | None = None,
    ahead: bool = True,
    thorough: bool = False,
    sandbox: sandboxes.Mode = "off",
) -> Verdict:
    """Judge the text of a learner's file.

    `steps` are the steps wanted (None: all). `progress` is called with a step's name, rules done and rules in all.
    `ahead`: begin all steps at once, which is sooner done where they pass, and more work where one fails.
    `thorough`: look at each instruction of a life that recovers, too, not only at its lines, statements and writes.
    `sandbox`: whether to shut the program in; `auto` does where that is possible.
    Raises KeyError for an unknown unit or step, and NoSandbox where one is required and cannot be had; everything about
    the learner's file is in the verdict.
    """
    chosen = find_unit(unit)
    wanted = [chosen.step(step).name for step in steps] if steps is not None else [step.name for step in chosen.steps]
    seed = todays_seed() if seed is None else seed
    learner = sections.split(source, [step.name for step in chosen.steps], name or chosen.file_name)
    with _at_work(chosen, learner, seed, method=method, progress=progress, thorough=thorough, sandbox=sandbox) as bench:
        judged = bench.judge(wanted, ahead)
    exploration = sum((result.exploration for result in judged), Exploration())
    return Verdict(unit, seed, tuple(result.verdict for result in judged), exploration)


@contextmanager
def _at_work(
    unit: Unit,
    learner: LearnerFile,
    seed: int,
    *,
    method: Method | None = None,
    progress: Progress | None = None,
    thorough: bool = False,
    sandbox: sandboxes.Mode = "off",
) -> Iterator[_Bench]:
    """A bench with its fork server. What interrupts the work, Ctrl-C say, ends all children at once."""
    shut_in = sandboxes.wanted(sandbox)
    with (
        Workshop(method, preload=unit.preload, shut_in=shut_in, strict=sandbox == "require") as workshop,
        ThreadPoolExecutor(RULES_AT_ONCE) as pool,
    ):
        try:
            yield _Bench(unit, learner, seed, workshop, pool, progress, thorough)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workshop.abandon()
            raise


def replay(
    source: str,
    rule: str,
    crashes: Sequence[At],
    *,
    unit: str = "receiver",
    seed: int | None = None,
    sandbox: sandboxes.Mode = "off",
) -> Finding:
    """Make one run of an exploration again: the program is ended at each of `crashes`, in one life each.

    The finding has the run's story, also where all is well. Raises KeyError for a rule that does not end programs at
    stops of its own choice, and NotMet where the program does not come by a stop.
    """
    chosen = find_unit(unit)
    step = chosen.step(rule.partition("/")[0])
    found = next((known for known in step.rules if known.id == rule and known.explores), None)
    if found is None:
        there = ", ".join(known.id for each in chosen.steps for known in each.rules if known.explores)
        raise KeyError(f"{rule} has no runs to replay; there are runs of {there}")
    learner = sections.split(source, [known.name for known in chosen.steps], chosen.file_name)
    with _at_work(chosen, learner, todays_seed() if seed is None else seed, sandbox=sandbox) as bench:
        return bench.replay(step, found, crashes)


@dataclass(frozen=True)
class CrashMap:
    """What happens if the program is ended: its text, the rule whose exploration tells, and the fate of every state."""

    rule: str
    sentence: str
    program: Program
    fates: Sequence[Fate]
    exploration: Exploration
    finding: Finding | None  # the shortest run that breaks a promise; without any fate it breaks where nothing is ended

    @property
    def later(self) -> Finding | None:
        """The finding, where no single crash shows it: it takes a second one, during recovery."""
        return None if any(fate.broken for fate in self.fates) else self.finding


def crash_map(
    source: str,
    *,
    unit: str = "receiver",
    seed: int | None = None,
    thorough: bool = False,
    sandbox: sandboxes.Mode = "off",
) -> CrashMap:
    """End the program of a learner's file everywhere, and note what comes of it, also after the first broken promise.

    The rule is that of the last step in the file which ends programs at all. Raises KeyError where there is none yet.
    """
    chosen = find_unit(unit)
    learner = sections.split(source, [step.name for step in chosen.steps], chosen.file_name)
    there = [(step, rule) for step in chosen.steps if learner.has(step.name) for rule in step.rules if rule.explores]
    if not there:
        wanted = next(step.name for step in chosen.steps if any(rule.explores for rule in step.rules))
        raise KeyError(f"nothing in the file can be ended yet: the first step with a map is {wanted}")
    step, rule = there[-1]
    seed = todays_seed() if seed is None else seed
    with _at_work(chosen, learner, seed, thorough=thorough, sandbox=sandbox) as bench:
        program = bench.own(step.name)
        case = Case(Crew(bench.workshop), program, bench.seed, rule.id, thorough, fates=[])
        try:
            rule.judge(case)
            finding = None
        except Broken as broken:
            finding = bench.broken(rule, broken, case)
    assert case.fates is not None
    return CrashMap(rule.id, rule.sentence, program, case.fates, case.exploration, finding)


@dataclass(frozen=True)
class _Judged:
    verdict: StepVerdict
    exploration: Exploration
    loads: bool


_remembered: dict[str, _Judged] = {}
_remembered_lock = threading.Lock()
MOST_REMEMBERED = 256


@dataclass(frozen=True)
class _Begun:
    """A step whose rules are being judged on `program`; `first` is what came of `defines`."""

    step: Step
    program: Program
    first: Finding
    rules: Sequence[Future[tuple[Finding, Exploration]]]
    crew: Crew

    def give_up(self) -> None:
        for rule in self.rules:
            rule.cancel()
        self.crew.give_up()


class _Bench:
    """One file under judgement: the verdicts of earlier steps decide what later ones are judged with.

    Rules wait more than they compute, so all steps are begun at once, on the guess that the earlier ones pass. Where
    one fails, what was begun for later steps is given up, and they are judged anew with the reference's section.
    """

    def __init__(
        self,
        unit: Unit,
        learner: LearnerFile,
        seed: int,
        workshop: Workshop,
        pool: ThreadPoolExecutor,
        progress: Progress | None,
        thorough: bool,
    ) -> None:
        self.unit = unit
        self.learner = learner
        self.seed = seed
        self.workshop = workshop
        self.pool = pool
        self.progress = progress
        self.thorough = thorough
        self.names = [step.name for step in unit.steps]
        self.reference = sections.split(unit.reference(), self.names, unit.file_name)
        self.judged: dict[str, _Judged] = {}
        self.begun: dict[str, _Begun] = {}

    def judge(self, wanted: Sequence[str], ahead: bool) -> list[_Judged]:
        """The wanted steps' verdicts, in the unit's order."""
        for name in [name for name in self.names if name in wanted and ahead]:
            program = self.own(name)
            if self.remembered(self.unit.step(name), program) is None:
                begun = self.begun[name] = self.begin(self.unit.step(name), program)
                if begun.first.outcome is not Outcome.PASS:
                    break  # the later steps will not be judged with this section
        return [self.step(name) for name in self.names if name in wanted]

    def step(self, name: str) -> _Judged:
        """The step's verdict. It passes with the learner's own earlier sections, or with the reference's in place of
        those that fail; earlier steps that nobody has asked for are judged only where the step fails without that.
        """
        if name not in self.judged:
            step, own = self.unit.step(name), self.own(name)
            result = self.on_its_own(step, own)
            if result is None:
                program = self.program(name)
                result = self.on(step, program)
                if result.verdict.outcome is Outcome.FAIL and program != own:
                    with_own = self.on(step, own)
                    result = with_own if with_own.verdict.passed else result
            self.judged[name] = result
        return self.judged[name]

    def on_its_own(self, step: Step, own: Program) -> _Judged | None:
        """The verdict on a step that was asked for without the earlier ones, if it passes as the file stands."""
        earlier = self.names[: self.names.index(step.name)]
        if all(name in self.judged for name in earlier) or not all(self.learner.has(name) for name in earlier):
            return None
        result = self.on(step, own)
        return result if result.verdict.passed else None

    def on(self, step: Step, program: Program) -> _Judged:
        """The step's verdict on `program`, from memory where it was judged before with the same seed."""
        result = self.remembered(step, program)
        if result is None:
            begun = self.begun.pop(step.name, None)
            if begun is not None and begun.program != program:
                begun.give_up()
                begun = None
            begun = begun or self.begin(step, program)
            result = self.finish(begun)
            self.remember(step, program, result)
        if result.verdict.outcome is Outcome.FAIL:
            for later in self.names[self.names.index(step.name) + 1 :]:
                if later in self.begun:
                    self.begun.pop(later).give_up()
        return result

    def remembered(self, step: Step, program: Program) -> _Judged | None:
        with _remembered_lock:
            passed = _remembered.get(self.memory_key(step, program, Outcome.PASS))
            return passed or _remembered.get(self.memory_key(step, program, Outcome.FAIL))

    def remember(self, step: Step, program: Program, result: _Judged) -> None:
        if result.verdict.outcome is Outcome.ERROR:
            return  # another time it may work
        with _remembered_lock:
            _remembered[self.memory_key(step, program, result.verdict.outcome)] = result
            while len(_remembered) > MOST_REMEMBERED:
                _remembered.pop(next(iter(_remembered)))

    def memory_key(self, step: Step, program: Program, outcome: Outcome) -> str:
        """Where a verdict with this outcome is kept. One that passes names no line, so that it holds wherever in the
        file the sections stand.
        """
        places = "" if outcome is Outcome.PASS else ",".join(str(line.number) for line in program.lines)
        how = (self.workshop.method, str(self.thorough), str(self.workshop.shut_in))
        told = (self.unit.name, step.name, str(self.seed), *how)
        parts = (JUDGE_VERSION, *told, program.digest, places)
        return hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()

    def program(self, name: str) -> Program:
        """The learner's sections up to `name`, with the reference's in place of earlier ones that fail."""
        earlier = {step: self.step(step) for step in self.names[: self.names.index(name)]}
        return self.compose(
            name,
            replaced={step for step, result in earlier.items() if result.verdict.outcome is Outcome.FAIL},
            unloadable={step for step, result in earlier.items() if not result.loads},
        )

    def own(self, name: str) -> Program:
        """The learner's sections up to `name`, as they are."""
        return self.compose(name, replaced=set(), unloadable=set())

    def compose(self, name: str, replaced: set[str], unloadable: set[str]) -> Program:
        upto = self.names[: self.names.index(name) + 1]
        public = {public for step in self.unit.steps for public in step.public}
        return compose(self.learner, self.reference, upto, replaced=replaced, unloadable=unloadable, public=public)

    def begin(self, step: Step, program: Program) -> _Begun:
        """Judge `defines`, and where that passes start on the other rules."""
        crew = Crew(self.workshop)
        first, _ = self.judge_rule(_defines(step, self.learner), program, crew)
        rules = step.rules if first.outcome is Outcome.PASS else []
        futures = [self.pool.submit(self.judge_rule, rule, program, crew) for rule in rules]
        return _Begun(step, program, first, futures, crew)

    def finish(self, begun: _Begun) -> _Judged:
        """Wait for the rules of a step that was begun."""
        step, first = begun.step, begun.first
        if first.outcome is not Outcome.PASS:
            skipped = [_skipped(rule, step) for rule in step.rules]
            return _Judged(StepVerdict(step.name, step.title, (first, *skipped)), Exploration(), loads=False)
        results = []
        for done, rule in enumerate(begun.rules, start=1):
            results.append(rule.result())
            if self.progress is not None:
                self.progress(step.name, done, len(begun.rules))
        findings = (first, *(finding for finding, _ in results))
        exploration = sum((explored for _, explored in results), Exploration())
        return _Judged(StepVerdict(step.name, step.title, findings), exploration, loads=True)

    def replay(self, step: Step, rule: Rule, crashes: Sequence[At]) -> Finding:
        case = Case(Crew(self.workshop), self.program(step.name), self.seed, rule.id, replay=crashes)
        try:
            rule.judge(case)
        except Broken as broken:
            return self.broken(rule, broken, case)
        return Finding(
            rule.id, rule.sentence, Outcome.PASS, rule.points, story=tuple(case.story.lines(self.unit.lanes))
        )

    def judge_rule(self, rule: Rule, program: Program, crew: Crew) -> tuple[Finding, Exploration]:
        """One rule's finding. The judge's own faults become the outcome `error`, after a second try."""
        for attempt in (1, 2):
            case = Case(crew, program, self.seed, rule.id, self.thorough)
            try:
                rule.judge(case)
            except Broken as broken:
                return self.broken(rule, broken, case), case.exploration
            except (Unreadable, Locked, sqlite3.Error) as error:
                refused = Broken(
                    "another process can use the store", str(error), "a lock is kept, or the shape is another"
                )
                return self.broken(rule, refused, case), case.exploration
            except ServerGone:
                return self.broken(rule, GONE, case), case.exploration
            except Exception as error:
                if attempt == 1 and isinstance(error, JudgeBroke | OSError):
                    continue
                return _error(rule, error, case.story.lines(self.unit.lanes)), case.exploration
            return Finding(rule.id, rule.sentence, Outcome.PASS, rule.points), case.exploration
        raise AssertionError("unreachable")

    def broken(self, rule: Rule, broken: Broken, case: Case) -> Finding:
        """The finding, told without what differs from run to run: the folder's name, ports and addresses."""

        def tidy(text: str) -> str:
            here = FOLDER.sub("", text.replace(str(self.workshop.folder), "FOLDER"))
            return ADDRESS.sub("", PORT.sub(r"\1PORT", here))

        told = Broken(tidy(broken.expected), tidy(broken.observed), tidy(broken.cause), tidy(broken.look), broken.where)
        told.crashes = broken.crashes
        story = broken.story or case.story
        return _broken(rule, told, [tidy(line) for line in story.lines(self.unit.lanes)])


STARTER = "this part is still the starter: it is not written yet"
GONE = Broken(
    "the program leaves other processes alone",
    "the process that starts the program was ended while the program ran",
    "a signal to the parent process or to a whole group, or so much memory that the system ends processes",
    "calls of os.kill, os.killpg and os.getppid",
)
FOLDER = re.compile(r"FOLDER/\d+/")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
PORT = re.compile(r"(127\.0\.0\.1'?[,:] ?)\d+")


def _defines(step: Step, learner: LearnerFile) -> Rule:
    """The rule that comes before all others of a step: without it there is nothing to judge."""

    def defines(case: Case) -> None:
        if not learner.has(step.name):
            case.fail(
                f"a cell that starts with `# %% {step.name}`",
                f"{learner.name} has no such line",
                "the step has not been written yet, or its marker is misspelt",
                f"the lines that start with `# %%`; this step's is exactly `# %% {step.name}`",
            )
        found = case.run(LOADS, {"names": list(step.public)}, patience=5.0)
        for name, kind in found.items():
            if kind != "callable":
                case.fail(
                    f"the section defines {name}",
                    f"{name} is {kind} after the section has run",
                    f"the definition of {name} is missing, misspelt, or in a later section",
                    f"the cell `# %% {step.name}`",
                )

    names = " and ".join(step.public) or "what the step needs"
    defines.__doc__ = f"The section runs on top of the earlier ones and defines {names}."
    return Rule(step.name, "defines", 0.0, defines)


def _skipped(rule: Rule, step: Step) -> Finding:
    message = f"Not judged: first make {step.name}/defines pass."
    return Finding(rule.id, rule.sentence, Outcome.SKIPPED, rule.points, message)


def _broken(rule: Rule, broken: Broken, story: Sequence[str]) -> Finding:
    rows = [("Expected", broken.expected), ("Observed", broken.observed)]
    if broken.where is not None and str(broken.where) not in broken.observed:
        rows.append(("In your code", str(broken.where)))
    cause = STARTER if "raised NotImplementedError" in broken.observed else broken.cause
    rows += [("Likely cause", cause), ("Look at", broken.look)]
    message = "\n".join(f"{label}: {text}" for label, text in rows if text)
    evidence: dict[str, object] = {"expected": broken.expected, "observed": broken.observed}
    if broken.where is not None:
        evidence["where"] = {"file": broken.where.file, "line": broken.where.line, "text": broken.where.text.strip()}
    if broken.crashes:
        evidence["crashes"] = [name_of(at) for at in broken.crashes]
    return Finding(rule.id, rule.sentence, Outcome.FAIL, rule.points, message, tuple(story), evidence)


def _error(rule: Rule, error: Exception, story: Sequence[str]) -> Finding:
    message = (
        f"The judge could not tell, through a fault of its own: {type(error).__name__}: {error}\n"
        "This costs you nothing. Run the check again; if it stays, report it with the seed."
    )
    evidence = {"traceback": traceback.format_exception(error)}
    return Finding(rule.id, rule.sentence, Outcome.ERROR, rule.points, message, tuple(story), evidence)


def unreadable_file(
    observed: str, cause: str, *, unit: str, name: str, steps: Sequence[str] | None, seed: int
) -> Verdict:
    """The verdict on a file that is no text: nothing can be run, so each wanted step fails at `defines`."""
    broken = Broken("a text file with a Python program", observed, cause, f"what {name} holds, and what wrote it")

    def judged(step: Step) -> StepVerdict:
        first = _broken(_defines(step, LearnerFile(name, {})), broken, ())
        return StepVerdict(step.name, step.title, (first, *(_skipped(rule, step) for rule in step.rules)))

    return Verdict(unit, seed, tuple(judged(step) for step in _wanted(unit, steps)))


def could_not_judge(error: Exception, *, unit: str, steps: Sequence[str] | None, seed: int) -> Verdict:
    """The verdict where `judge` itself raised: no rule was judged, and none costs a point."""

    def judged(step: Step) -> StepVerdict:
        return StepVerdict(step.name, step.title, tuple(_error(rule, error, ()) for rule in step.rules))

    return Verdict(unit, seed, tuple(judged(step) for step in _wanted(unit, steps)))


def _wanted(unit: str, steps: Sequence[str] | None) -> list[Step]:
    return [step for step in find_unit(unit).steps if steps is None or step.name in steps]
