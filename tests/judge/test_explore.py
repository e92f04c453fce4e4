"""The exploration: where it ends a program, that it finds what breaks there, and that it doubts its own grouping."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

import pytest

from graders.engine.explore import SAMPLE, Stop, chosen, ends_of_states, explore
from graders.engine.probes import AS_MAIN
from graders.engine.processes import Crew, Ending, Job, JudgeBroke, Workshop
from graders.engine.program import Program
from graders.engine.rules import Broken, Case
from graders.engine.sections import Line
from graders.engine.world import Peer, World


class Counts:
    """A program that must leave `done` in the file `result`, and may have nothing else in it at any moment."""

    def life(self, world: World) -> Job:
        return world.case.job(AS_MAIN, folder=world.folder, load=False)

    def peer(self, case: Case) -> AbstractContextManager[Peer] | None:
        return None

    def tell(self, world: World) -> None:
        world.story.program("writes its result")

    def after_crash(self, world: World) -> Hashable:
        found = world.files().get("result", b"")
        if found not in (b"", b"done"):
            world.case.fail("all or nothing", f"{found!r}")
        return found

    def after_life(self, world: World) -> bool:
        if world.ending != Ending(0) or world.files().get("result") != b"done":
            world.case.fail("done", f"{world.ending} {world.files()}")
        return True


@pytest.fixture(scope="module")
def workshop() -> Iterator[Workshop]:
    with Workshop("fork") as workshop:
        yield workshop


def case_of(workshop: Workshop, source: str, *, thorough: bool = False) -> Case:
    lines = tuple(Line(text, number) for number, text in enumerate(source.splitlines(), start=1))
    return Case(Crew(workshop), Program("client.py", lines), 1, "x/y", thorough)


WHOLE = "import os\nopen('part', 'w').write('done')\nos.replace('part', 'result')\n"


@pytest.mark.parametrize("thorough", [False, True])
def test_a_program_that_replaces_its_file_is_right_everywhere(workshop: Workshop, thorough: bool) -> None:
    case = case_of(workshop, WHOLE, thorough=thorough)
    explore(case, Counts(), whole=True)
    assert case.exploration.points > 20
    # nothing; an empty part, which Python makes before it writes; a whole part; the result: each life sees some of them
    assert case.exploration.states >= 6
    assert case.exploration.kills > case.exploration.states


def test_what_breaks_between_two_instructions_of_one_line_is_found(workshop: Workshop) -> None:
    source = "f = open('result', 'wb', 0)\nprint(f.write(b'do'), f.write(b'ne'))\n"
    with pytest.raises(Broken) as caught:
        explore(case_of(workshop, source), Counts(), whole=True)
    assert caught.value.observed == "b'do'"
    assert caught.value.where is not None and caught.value.where.line == 2
    assert caught.value.story is not None
    assert "while `print(f.write(b'do'), f.write(b'ne'))` (line 2) runs" in caught.value.story.events[-1].text


SECOND = """import os
if os.path.exists('part'):
    f = open('result', 'wb', 0)
    f.write(b'do')
    f.write(b'ne')
    os.remove('part')
elif not os.path.exists('result'):
    open('part', 'w').close()
    open('whole', 'w').write('done')
    os.replace('whole', 'result')
    os.remove('part')
"""


def test_a_second_crash_during_recovery_is_found(workshop: Workshop) -> None:
    with pytest.raises(Broken) as caught:
        explore(case_of(workshop, SECOND), Counts(), whole=True)
    assert caught.value.observed == "b'do'"
    assert caught.value.story is not None
    crashes = [event.text for event in caught.value.story.events if "the power goes out" in event.text]
    assert len(crashes) == 2
    assert "(line 5)" in crashes[1]


def test_an_outcome_that_differs_within_a_state_is_the_judges_doubt(workshop: Workshop) -> None:
    class Fickle(Counts):
        """What the crash left seems to change by itself, as where the judge does not see all that matters."""

        looks = 0

        def after_crash(self, world: World) -> Hashable:
            self.looks += 1
            return self.looks

    with pytest.raises(JudgeBroke, match="left different things"):
        explore(case_of(workshop, WHOLE), Fickle(), whole=True)


def test_a_state_that_no_life_comes_by_again_is_not_passed(workshop: Workshop, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    source = f"import os\nif not os.path.exists({str(seen)!r}):\n    open({str(seen)!r}, 'w').close()\n"
    source += "    open('extra', 'w').close()\n    os.remove('extra')\n" + WHOLE
    with pytest.raises(JudgeBroke, match="never met again"):
        explore(case_of(workshop, source), Counts(), whole=True)


def test_a_program_whose_lives_take_long_is_not_explored_for_hours(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graders.engine.explore.MOST_SECONDS", 0.5)
    with pytest.raises(JudgeBroke, match="were not enough"):
        explore(case_of(workshop, "import time\ntime.sleep(0.3)\n" + WHOLE), Counts(), whole=True)


def test_names_that_are_new_each_time_make_no_difference(workshop: Workshop) -> None:
    source = (
        "import os, tempfile\nnumber, part = tempfile.mkstemp(dir='.')\nos.write(number, b'done')\nos.close(number)\n"
        "os.replace(part, 'result')\n"
    )
    explore(case_of(workshop, source), Counts(), whole=True)


def test_every_line_every_state_and_a_sample_get_a_kill() -> None:
    lines_and_states = [(1, 0), (2, 0), (3, 0), (3, 1), (4, 1), (1, 1)]
    stops = [Stop((line, "line", number), state) for number, (line, state) in enumerate(lines_and_states)]
    assert ends_of_states(stops) == [(0, 2), (3, 5)]

    class NoSample(Random):
        def sample(self, *_: object, **__: object) -> list[int]:  # type: ignore[override]
            return []

    assert chosen(stops, range(1, 8), NoSample()) == ([0, 2, 3, 5], [1, 4])
    assert chosen(stops, range(7, 8), NoSample()) == ([0, 2, 3, 5], [])

    many = [Stop((1, "instruction", number), 0) for number in range(100)]
    alone, together = chosen(many, range(1, 2), Random(1))
    assert len(alone) == 2 + SAMPLE and {0, 99} <= set(alone) and not together
