"""Reading a submission folder: what comes to be judged, and what is told about the rest. Secrets and kept verdicts."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graders import registry
from graders.course import judging, secret
from graders.course.submission import Submission, read
from graders.course.verdicts import VerdictStore
from graders.engine.section_writer import place, section_text
from graders.verdict import Exploration, Finding, Outcome, StepVerdict, Verdict

UNIT = registry.unit("receiver")
STEPS = [step.name for step in UNIT.steps]
NAMES = [f"{number:02}_{step}.ipynb" for number, step in enumerate(STEPS, start=1)]
STARTER = "%%step framing\ndef frames(data):\n    raise NotImplementedError()\n"
MINE = "%%step framing\nmine = 1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "ada" / UNIT.name
    made.mkdir(parents=True)
    return made


def code(source: object, **more: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": {}, **more}


def marked(source: str, grade_id: str = "framing-solution", **more: Any) -> dict[str, Any]:
    return code(source) | {"metadata": {"nbgrader": {"grade_id": grade_id}}} | more


def put(folder: Path, *cells: object, name: str = NAMES[0]) -> None:
    (folder / name).write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


def framing(folder: Path) -> str | None:
    return section_text(read(folder, UNIT).source, "framing", STEPS)


def told(folder: Path, name: str = NAMES[0]) -> list[str]:
    return [problem.text for problem in read(folder, UNIT).problems if problem.file == name]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([code(MINE)], "mine = 1"),
        ([code(["%%step framing\n", "mine = 1\n"])], "mine = 1"),
        ([code("\r\n%%step framing\r\nmine = 1\r\n")], "mine = 1"),
        ([code(MINE, cell_type="markdown")], "mine = 1"),
        ([code(MINE, cell_type="raw")], "mine = 1"),
        ([code("%%step framing\nearlier = 1"), code("2 + 2"), code(MINE)], "mine = 1"),
        ([code(MINE), code(STARTER)], "mine = 1"),
        ([marked("%%step framing\nmine = 1"), marked("more = 2")], "mine = 1\n\nmore = 2"),
        ([code("%%step framing\nmine = 1"), marked("more = 2")], "mine = 1\n\nmore = 2"),
        ([marked("%%step framing\nmine = 1"), code("more = 2")], "mine = 1"),
        ([marked("mine = 1")], "mine = 1"),
        ([marked(MINE), marked("%%step framing\nlater = 2")], "later = 2"),
    ],
)
def test_the_cell_of_a_step_is_found(folder: Path, cells: list[Any], expected: str) -> None:
    put(folder, *cells)
    assert framing(folder) == expected and told(folder) == []


def test_a_cell_for_an_earlier_step_counts_as_it_would_in_the_notebook(folder: Path) -> None:
    put(folder, code("%%step framing\nearlier = 1"))
    put(folder, code(MINE), code("%%step store\nstore = 1"), name=NAMES[1])
    assert framing(folder) == "mine = 1"


@pytest.mark.parametrize(("cell", "expected"), [(STARTER, "edited = 1"), (MINE, "mine = 1"), ("", "edited = 1")])
def test_the_file_counts_where_the_cell_was_not_written(folder: Path, cell: str, expected: str) -> None:
    (folder / "client.py").write_text(place("# Mine.\n", "framing", "edited = 1", STEPS))
    put(folder, code(cell))
    assert framing(folder) == expected
    assert read(folder, UNIT).source.startswith("# Mine.\n")


def test_two_starters_leave_a_starter(folder: Path) -> None:
    put(folder, code(STARTER))
    assert "NotImplementedError" in str(framing(folder))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"[" * 100_000, "nested more deeply"),
        (b"[" * 3_000_000, "more lists and objects"),
        (b"3", "no notebook"),
        (b'{"cells": {}}', "no notebook"),
        (b'{"cells": [null, 3, {"source": 4}]}', "a notebook of another assignment"),
        (b'{"cells": [{"source": "%%step pages\\n1"}]}', "a notebook of another assignment"),
        (b'{"cells": [{"source": "%%step framing\\n# %% store\\n1"}]}', "starts another one"),
        (b'{"cells": [{"source": "%%step framing\\n' + b"x" * 1_100_000 + b'"}]}', "longer than any program"),
    ],
)
def test_a_notebook_that_cannot_be_used_is_told(folder: Path, data: bytes, words: str) -> None:
    (folder / NAMES[0]).write_bytes(data)
    put(folder, code("%%step store\nstore = 1"), name=NAMES[1])
    (problem,) = told(folder)
    assert words in problem
    assert section_text(read(folder, UNIT).source, "store", STEPS) == "store = 1"


@pytest.mark.parametrize(
    "data", [b"\0", b"\xff", b"# coding: nothing\n", b"# coding: unicode_escape\n\\ud800", b"x" * 1_100_000]
)
def test_a_file_that_cannot_be_read_is_told(folder: Path, data: bytes) -> None:
    (folder / "client.py").write_bytes(data)
    (problem,) = told(folder, "client.py")
    assert problem.endswith("only what is in the notebooks counts")


def _link(path: Path) -> None:
    target = path.parents[2] / "treasure"
    target.write_text(json.dumps({"cells": [code(MINE)]}))
    path.symlink_to(target)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)


@pytest.mark.parametrize("name", [NAMES[0], "client.py", "data.txt", ".hidden"])
@pytest.mark.parametrize("make", [_link, _loop, os.mkfifo, _socket])
def test_what_is_no_plain_file_is_never_opened(folder: Path, make: Callable[[Path], None], name: str) -> None:
    make(folder / name)
    (problem,) = told(folder, name)
    assert "not a plain file" in problem and framing(folder) is None


def test_a_folder_in_place_of_a_notebook_is_told(folder: Path) -> None:
    (folder / NAMES[0]).mkdir()
    assert told(folder) == ["is a folder and not a plain file: it was not opened"]


def test_a_linked_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    put(folder, code(MINE))
    (tmp_path / "eve").mkdir()
    (tmp_path / "eve" / UNIT.name).symlink_to(folder)
    assert read(tmp_path / "eve" / UNIT.name, UNIT).source == ""


def test_other_files_are_nobody_s_business_but_a_notebook_is_asked_about(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    (folder / ".ipynb_checkpoints").mkdir()
    put(folder, code(MINE), name="01_framing-Copy1.ipynb")
    found = [problem.file for problem in read(folder, UNIT).problems if problem.file not in NAMES]
    assert found == ["01_framing-Copy1.ipynb"]


def test_a_problem_is_one_line_whatever_the_name(folder: Path) -> None:
    os.mkfifo(os.fsencode(folder) + b"/a\nb\x1b[31m\xff")
    (line,) = [str(problem) for problem in read(folder, UNIT).problems if problem.file not in NAMES]
    assert line.isprintable()


def test_the_digest_is_of_what_is_judged(folder: Path) -> None:
    put(folder, code(MINE))
    before = read(folder, UNIT)
    assert before.student == "ada"
    (folder / "notes.txt").write_text("mine")
    put(folder, code("2 + 2"), code(MINE, outputs=[3]))
    assert read(folder, UNIT).digest == before.digest
    put(folder, code(MINE + "more = 1"))
    assert read(folder, UNIT).digest != before.digest


# ------------------------------------------------------------------------------------------------- secret and verdicts


def test_a_secret_gives_each_student_a_seed(tmp_path: Path) -> None:
    secret.create(tmp_path)
    key = secret.read(tmp_path)
    seeds = {secret.seed_of(key, unit, student) for unit in ("receiver", "pages") for student in ("ada", "eve")}
    assert len(seeds) == 4 and all(0 <= seed < 2**53 for seed in seeds)
    assert secret.seed_of(key, "receiver", "ada") == secret.seed_of(key, "receiver", "ada")
    assert secret.seed_of(b"x" * 32, "receiver", "ada") not in seeds


def _missing(path: Path) -> None:
    path.unlink()


def _open(path: Path) -> None:
    path.chmod(0o640)


def _short(path: Path) -> None:
    path.write_text("short")


def _elsewhere(path: Path) -> None:
    path.rename(path.with_name("there"))
    path.symlink_to("there")


@pytest.mark.parametrize("harm", [_missing, _open, _short, _elsewhere])
def test_a_secret_that_is_none_is_refused(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    secret.create(tmp_path)
    harm(tmp_path / secret.NAME)
    with pytest.raises(secret.NoSecret):
        secret.read(tmp_path)


def verdict(outcome: Outcome = Outcome.PASS, seed: int = 7, words: str = "") -> Verdict:
    """A verdict on the whole unit, the same for every rule."""
    steps = []
    for step in UNIT.steps:
        rules = [(f"{step.name}/defines", 0.0), *((rule.id, rule.points) for rule in step.rules)]
        findings = [Finding(name, "A promise.", outcome, most, words, (words,), {"n": [1]}) for name, most in rules]
        steps.append(StepVerdict(step.name, step.title, tuple(findings)))
    return Verdict(UNIT.name, seed, tuple(steps), Exploration(5, 4, 3, 0.5))


def test_a_verdict_is_kept_and_found(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path / "kept")
    store.keep(UNIT, "digest", verdict(Outcome.FAIL, words="\ud800 Observed: x"))
    found = store.find(UNIT, 7, "digest")
    assert found is not None and [step.score for step in found.steps] == [0.0] * len(STEPS)
    assert found.exploration == Exploration(5, 4, 3, 0.5)
    assert store.find(UNIT, 8, "digest") is None and store.find(UNIT, 7, "other") is None


def test_a_verdict_in_which_the_judge_broke_is_not_kept(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    store.keep(UNIT, "digest", verdict(Outcome.ERROR))
    assert store.find(UNIT, 7, "digest") is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"pass"', '"perfect"'),
        ('"max_points": 0.5', '"max_points": 50'),
        ('"seed": 7', '"seed": 8'),
        ('"unit": "receiver"', '"unit": "pages"'),
        ("framing/defines", "framing/defined"),
        ("{", "["),
        ('"story": [', '"story": [3, '),
        ('"evidence": {"n"', '"evidence": 5, "x": {"n"'),
    ],
)
def test_a_damaged_verdict_counts_as_not_there(tmp_path: Path, old: str, new: str) -> None:
    store = VerdictStore(tmp_path)
    store.keep(UNIT, "digest", verdict())
    (path,) = tmp_path.iterdir()
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert store.find(UNIT, 7, "digest") is None


# ------------------------------------------------------------------------------------------------- what students see


SUBMISSION = Submission("ada", "", (), "digest")


def shown(tmp_path: Path, hidden: Verdict, public: Verdict) -> Verdict:
    store = VerdictStore(tmp_path)
    store.keep(UNIT, SUBMISSION.digest, replace(public, seed=judging.PUBLIC_SEED))
    return judging.shown(SUBMISSION, UNIT, hidden, store, "off")


def test_where_the_public_run_fails_too_it_is_shown(tmp_path: Path) -> None:
    seen = shown(tmp_path, verdict(Outcome.FAIL, words="secret value"), verdict(Outcome.FAIL, words="public value"))
    assert "secret" not in repr(seen) and "public value" in repr(seen)
    assert seen.seed == judging.PUBLIC_SEED and seen.score == 0


@pytest.mark.parametrize(
    ("public", "words"), [(Outcome.PASS, judging.KEPT_IN_PUBLIC), (Outcome.SKIPPED, judging.HIDDEN)]
)
def test_where_only_the_hidden_run_fails_the_sentence_is_all(tmp_path: Path, public: Outcome, words: str) -> None:
    seen = shown(tmp_path, verdict(Outcome.FAIL, words="secret value"), verdict(public))
    assert "secret" not in repr(seen) and seen.score == 0
    assert {rule.message for step in seen.steps for rule in step.rules} == {words}


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.ERROR, Outcome.SKIPPED])
def test_nothing_of_the_hidden_run_is_in_any_other_outcome(tmp_path: Path, outcome: Outcome) -> None:
    seen = shown(tmp_path, verdict(outcome, words="secret value"), verdict(Outcome.FAIL, words="public value"))
    assert "value" not in repr(seen)
    assert {rule.outcome for step in seen.steps for rule in step.rules} == {outcome}


def test_points_about_which_the_judge_could_not_tell_are_not_given() -> None:
    step = verdict(Outcome.PASS).steps[0]
    unsure = replace(step, rules=[*step.rules[:-1], replace(step.rules[-1], outcome=Outcome.ERROR)])
    assert judging.sure_points(step) == step.max_score
    assert judging.sure_points(unsure) == round(step.max_score - step.rules[-1].max_points, 6)
    assert judging.sure_points(verdict(Outcome.SKIPPED).steps[0]) == 0


def test_a_verdict_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(source: str, **settings: Any) -> Verdict:
        asked.append(settings["seed"])
        return verdict(seed=settings["seed"])

    monkeypatch.setattr(judging, "judge", counted)
    for seed in (7, 7, 8):
        assert judging.judged(SUBMISSION, UNIT, seed, VerdictStore(tmp_path), "off").passed
    assert asked == [7, 8]
