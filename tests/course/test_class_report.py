"""The page about a class: it tells what there is, names nobody where it must not, and runs nothing of a student's."""

from __future__ import annotations

import json
import os
import re
import shutil
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import stored
from classes import STEPS, hand_in, new_class, sign
from click.testing import CliRunner, Result
from nbgrader.api import Gradebook
from nbgrader_run import UNIT, name_of

from graders.course import batch as batches
from graders.course import class_report, history, trend
from graders.course.results import Result as OfStudent
from graders.course.wrong_lines import wrong_lines
from lab.cli import main

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own, about its own
NASTY = "</td><script>alert('adaline')</script>\x1b[31m\u202e {{ 7 * 7 }}"
RULE = "atomic_apply/killed_anywhere"
COMMIT = 'con.execute("COMMIT")'
BROKEN = {
    "adaline": {RULE: f"{COMMIT}  # adaline's"},
    "<b>bob": {RULE: f"{COMMIT.replace('(', '( ')}", "store/schema": NASTY},
    "cem10": {rule.id: "pass" for rule in stored.RECEIVER.step("framing").rules},
}
VOID = {"meta", "br", "line", "rect"}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three students with grades, one of them without a notebook; one to be graded, and one without a submission."""
    course = new_class(tmp_path_factory.mktemp("class") / "course", dict.fromkeys(BROKEN, ()))
    (course / "submitted" / "cem10" / UNIT / name_of("reconnect")).unlink()
    for student, broken in BROKEN.items():
        stored.grade(course, student, broken)
    hand_in(course, "cem9", ())
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        book.add_student("zoe", first_name="Zoe", last_name="Zimmer")
        book.find_grade("store", "02_store", UNIT, "adaline").needs_manual_grade = True
        book.db.commit()
    return course


@pytest.fixture
def course(graded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(graded, tmp_path / "course"))


def report(course: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["report", UNIT, "--course", str(course), *arguments], catch_exceptions=False)


def page(course: Path, *arguments: str) -> str:
    done = report(course, "--output", str(course / "page.html"), *arguments)
    assert done.exit_code == 0, done.output
    return (course / "page.html").read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Tables as rows of texts; nothing runs, nothing is fetched, and elements nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.captions = self.tables = 0
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "img", "link", "iframe", "b"}
        assert not {name for name, _ in attrs if name.startswith("on") or name in {"src", "href"}}
        assert tag != "th" or "scope" in dict(attrs)
        self.tables += tag == "table"
        self.captions += tag == "caption"
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & {*self.open}:
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {data}".strip()


def rows(text: str) -> dict[str, list[str]]:
    return {row[0]: [" ".join(cell.split()) for cell in row[1:]] for row in Reader(text).rows}


def test_everybody_has_a_row_in_words_and_in_order(course: Path) -> None:
    text = page(course)
    found = rows(text)
    names = ["<b>bob", "adaline", "cem9", "cem10", "Zoe Zimmer (zoe)"]
    assert [name for name in found if name in names] == names
    assert found["Zoe Zimmer (zoe)"] == ["– not handed in"] * len(STEPS) + [""]
    assert found["cem9"] == ["? not graded yet"] * len(STEPS) + [""]
    assert found["adaline"][0].startswith("✓ 3 of 3")
    assert found["adaline"][1].startswith("! waits for a person, 3 of 3 so far")
    assert found["adaline"][2].startswith("◕ 3.5 of 4")
    assert found["cem10"][0].startswith("✗ 0 of 3")
    assert found["cem10"][6] == "– not handed in, 0 of 3"
    assert found["framing"][:2] == ["3", "67 %, 2 of 3"]  # three students: 3, 3 and 0
    assert found["reconnect"][0] == "2" and found["store"][0] == "2"
    reader = Reader(text)
    assert reader.captions == reader.tables == 4


def test_a_rule_has_its_share_and_its_lines(course: Path) -> None:
    share, told = rows(page(course))[RULE]
    assert share == "67 %, 2 of 3"
    assert "every event is counted once" in told
    assert "COMMIT" in told and "2 students: <b>bob, adaline" in told and "#" not in told
    assert stored.HIDDEN not in page(course)


def test_hostile_text_stays_text(course: Path) -> None:
    for arguments in ([], ["--anonymous"]):
        text = page(course, *arguments)
        assert "</td><script>alert(" in rows(text)["store/schema"][1]
        assert r"\x1b[31m\u202e {{ 7 * 7 }}" in rows(text)["store/schema"][1]
        assert all(char == "\n" or char.isprintable() for char in text)


def test_without_names_nobody_is_named(course: Path) -> None:
    text = page(course, "--anonymous")
    for name in (*BROKEN, "&lt;b&gt;bob", "cem9", "zoe", "zimmer", "ada", str(course), stored.HIDDEN):
        assert name.lower() not in text.lower(), name
    found = rows(text)
    assert [name for name in found if name.startswith("student")] == [f"student {number}" for number in range(1, 6)]
    named = rows(page(course))
    assert sorted(found[f"student {number}"] for number in range(1, 6)) == sorted(
        named[name] for name in (*BROKEN, "cem9", "Zoe Zimmer (zoe)")
    )
    assert class_report.LEFT_OUT in found["store/schema"][1]


def test_the_order_without_names_comes_from_the_secret() -> None:
    results = [OfStudent(f"s{number:02}", "", False, None) for number in range(30)]

    one, again, two = (class_report.shuffled(results, key, UNIT) for key in (b"one", b"one", b"two"))
    assert one == again != two
    assert one != results and sorted(each.student for each in one) == [each.student for each in results]


def _luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_in_both_themes() -> None:
    template = Path(class_report.__file__).with_name("class_report.html.j2").read_text(encoding="utf-8")
    themes = [
        dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in re.findall(r":root \{(.*?)\}", template, re.DOTALL)
    ]
    assert len(themes) == 2 and themes[0].keys() == themes[1].keys()
    for theme in themes:
        for ground in ("page", "code", *(kind.name for kind in class_report.KINDS)):
            assert _contrast(theme["ink"], theme[ground]) >= 4.5, ground
        assert _contrast(theme["muted"], theme["page"]) >= 4.5
        assert _contrast(theme["bar"], theme["track"]) >= 3


def test_refusals_are_one_line(course: Path, tmp_path: Path) -> None:
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        for student in BROKEN:
            book.remove_submission(UNIT, student)
    refuses(course, "nobody is graded yet")
    (course / "gradebook.db").unlink()
    refuses(course, "nobody is graded yet")
    refuses(tmp_path / "none", "is no course")
    assert not (course / "class-report.html").exists() and not (course / "gradebook.db").exists()


def refuses(course: Path, said: str) -> None:
    done = report(course)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_lines_that_differ_in_white_space_and_comments_are_one() -> None:
    texts = ["f( x,1 ) # why", "f(x, 1)", "\tf(x, 1)", "g('#')", "if (", "'open", None, 7, "", "# only"]
    found = wrong_lines((f"s{number}", {"text": text}) for number, text in enumerate(texts))
    assert [(line.text, line.count) for line in found] == [
        ("f(x, 1)", 3),
        ("# only", 1),
        ("'open", 1),
        ("g('#')", 1),
        ("if (", 1),
    ]


NOW = datetime(2026, 11, 30, 23, 30, tzinfo=UTC)


def entry(made_of: str, points: float = 1, days: int = 0) -> history.Entry:
    return history.Entry(NOW + timedelta(days=days), made_of, {"framing": points})


def test_a_history_outlives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / f"ada{history.SUFFIX}"
    history.append(tmp_path, "ada", entry("a"))
    whole = path.read_bytes()
    for torn in (whole[:-1], whole[:20], b"\xff"):
        path.write_bytes(whole + torn)
        assert history.read(tmp_path) == {"ada": [entry("a")]}
    history.append(tmp_path, "ada", entry("b"))
    assert history.read(tmp_path) == {"ada": [entry("a"), entry("b")]}
    assert path.read_bytes().startswith(whole) and path.read_bytes().count(b"\n") == 2


def test_the_same_grading_done_again_is_no_attempt(tmp_path: Path) -> None:
    for made_of in ("a", "a", "b", "b", "a"):
        history.append(tmp_path, "ada", entry(made_of))
    assert [each.made_of for each in history.read(tmp_path)["ada"]] == ["a", "b", "a"]


@pytest.mark.parametrize("line", ["[]", "7", '{"time": 1}', "[" * 5000, '{"time":"x","made_of":"a","points":{}}', ""])
def test_a_line_that_is_no_entry_is_passed_over(tmp_path: Path, line: str) -> None:
    history.append(tmp_path, "ada", entry("a"))
    with open(tmp_path / f"ada{history.SUFFIX}", "a") as file:
        file.write(f"{line}\n")
    assert history.read(tmp_path) == {"ada": [entry("a")]}


def test_a_kill_before_the_record_is_no_second_attempt(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line in the history is there, the record that says `graded` is not: the grading is done again."""
    folder = course / ".graded" / UNIT

    def killed(path: Path, data: bytes) -> None:
        raise KeyboardInterrupt

    assert len(history.read(folder)["adaline"]) == 1
    sign(course / "submitted" / "adaline" / UNIT, "second thoughts")
    stored.keep(course, "adaline", {})
    monkeypatch.setattr(batches, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        list(stored.batch(course).grade(["adaline"]))
    monkeypatch.undo()
    assert len(history.read(folder)["adaline"]) == 2
    (done,) = stored.batch(course).grade(["adaline"])
    assert done.changed
    first, second = history.read(folder)["adaline"]
    assert second.made_of == json.loads((folder / "adaline.json").read_text())["made_of"] != first.made_of
    assert second.total > first.total
    assert "attempts, the mean" in page(course)


def test_a_kill_in_the_middle_leaves_no_record(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nbgrader begins by removing what it wrote before: then the record of before must not say that it is there."""

    def killed(self: object, student: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(batches.Gradebook, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        list(stored.batch(course).grade(["adaline"], again=True))
    assert stored.batch(course).recorded("adaline") == ""
    assert len(history.read(course / ".graded" / UNIT)["adaline"]) == 1


def test_days_and_their_picture() -> None:
    days = trend.by_day([[entry("a", 2), entry("b", 10, 3)], [entry("c", 20, 3)], []])
    assert [(day.attempts, day.students, day.mean) for day in days] == [(1, 1, 2), (2, 2, 15)]
    for some in (days, days[:1], trend.by_day([[entry("", 1, n) for n in range(400)]])):
        picture = ElementTree.fromstring(trend.draw(some, 20))
        assert "Attempts by day" in " ".join(picture.itertext())


def test_nothing_is_known_where_only_nbgrader_has_graded(course: Path) -> None:
    shutil.rmtree(course / ".graded")
    assert "Nothing is known of earlier attempts" in page(course)
    assert os.listdir(course).count(".graded") == 0
