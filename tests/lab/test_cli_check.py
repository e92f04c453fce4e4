"""`recovery-lab check` from outside: exit statuses, one document on standard output, and nothing left behind."""

from __future__ import annotations

import contextlib
import datetime
import glob
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import psutil
import pytest
from click.testing import CliRunner, Result
from sandboxed import needs_sandbox

from graders import judge as judging
from graders import registry
from graders.engine import sandbox as sandbox_of_the_judge
from graders.report import as_json
from graders.verdict import Exploration, Finding, Outcome, StepVerdict, Verdict
from lab.cli import main

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = registry.unit("receiver").reference()
HEAD = "# %% framing\n"
SCHEMA = json.loads(as_json.SCHEMA.read_text("utf-8"))
FORMATS = ["text", "json", "junit", "gradescope"]


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """The reference, as a learner's file."""
    path = tmp_path / "client.py"
    path.write_text(REFERENCE)
    return path


def check(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


def verdict_of(result: Result) -> dict[str, Any]:
    """The one JSON object on standard output."""
    data = json.loads(result.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    assert isinstance(data, dict)
    return data


def outcomes(verdict: dict[str, Any]) -> dict[str, str]:
    return {rule["rule"]: rule["outcome"] for step in verdict["steps"] for rule in step["rules"]}


# What came of it


def test_all_rules_pass(client: Path) -> None:
    result = check(client, "--step", "framing", "--seed", "20261130")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "pass  framing             3 of 3  9 of 9 rules kept\n\n"
        "score   3 of 3\n"
        "seed    20261130\n"
        f"again   recovery-lab check {client} --step framing --seed 20261130\n"
    )


def test_some_rule_fails(client: Path) -> None:
    assert "DELTA_LIMIT = 1000" in REFERENCE
    client.write_text(REFERENCE.replace("DELTA_LIMIT = 1000", "DELTA_LIMIT = 1001"))
    result = check(client, "--step", "framing", "--seed", "1", "--format", "json")
    verdict = verdict_of(result)
    assert result.exit_code == 1
    assert {rule for rule, outcome in outcomes(verdict).items() if outcome != "pass"} == {"framing/range"}
    assert (verdict["passed"], verdict["score"], verdict["seed"]) == (False, 2.5, 1)


def test_the_judge_could_not_tell(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = Finding("framing/accepts", "Kept.", Outcome.PASS, 1.0)
    failed = Finding("framing/length", "Broken.", Outcome.FAIL, 1.0)
    unknown = Finding("framing/range", "Unknown.", Outcome.ERROR, 1.0, "no process left")
    step = StepVerdict("framing", "Framing", (passed, failed, unknown))
    monkeypatch.setattr(judging, "judge", lambda *_, **__: Verdict("receiver", 1, (step,), Exploration()))
    for form in FORMATS:
        result = check(client, "--format", form)
        assert result.exit_code == 3
        assert "no process left" in result.stdout


def test_the_judge_itself_breaks(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Verdict:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(judging, "judge", broken)
    result = check(client, "--step", "framing", "--format", "json")
    verdict = verdict_of(result)
    assert result.exit_code == 3
    assert set(outcomes(verdict).values()) == {"error"}
    assert verdict["score"] == verdict["max_score"] == 3.0 and not verdict["passed"]
    assert result.stderr == "recovery-lab: the judge broke: OSError: [Errno 28] No space left on device\n"


# Steps, seeds, formats


def test_several_steps_come_in_the_unit_s_order(client: Path) -> None:
    verdict = verdict_of(check(client, "--step", "store", "--step", "framing", "--step", "store", "--format", "json"))
    assert [step["step"] for step in verdict["steps"]] == ["framing", "store"]


def test_the_seed_is_today_where_none_is_given(client: Path) -> None:
    before = int(f"{datetime.date.today():%Y%m%d}")
    seed = verdict_of(check(client, "--step", "framing", "--format", "json"))["seed"]
    assert before <= seed <= int(f"{datetime.date.today():%Y%m%d}")


def test_the_same_seed_gives_the_same_text_and_another_gives_another(client: Path) -> None:
    client.write_text(HEAD + "class ProtocolError(ValueError): ...\ndef parse_line(line): return 0, 0\n")
    texts = [spawned(client, "--step", "framing", "--seed", seed).stdout for seed in ("5", "5", "6")]
    assert texts[0] == texts[1]
    assert texts[0].replace("--seed 5", "--seed 6").replace("seed    5", "seed    6") != texts[2]


def test_both_methods_give_the_same_verdict(client: Path) -> None:
    client.write_text(HEAD + "class ProtocolError(ValueError): ...\ndef parse_line(line): return 0, 0\n")
    first, second = (
        spawned(client, "--step", "framing", "--seed", "5", "--method", how).stdout for how in ("fork", "spawn")
    )
    assert first == second and "broken  framing/accepts" in first


@pytest.mark.parametrize("source", [REFERENCE, "", HEAD + "print('hello')\nimport sys; print('hi', file=sys.stderr)\n"])
def test_standard_output_is_one_document(client: Path, source: str) -> None:
    client.write_text(source)
    arguments = (client, "--step", "framing", "--seed", "1", "--format")
    for form in ("json", "gradescope"):
        done = spawned(*arguments, form)
        assert isinstance(json.loads(done.stdout), dict) and done.stdout.count("\n") == 1
        assert (done.stderr, done.returncode) == ("", 0 if source == REFERENCE else 1)
    assert ElementTree.fromstring(spawned(*arguments, "junit").stdout).tag == "testsuites"


def test_the_same_again_is_really_the_same(client: Path) -> None:
    first = check(client, "--step", "framing", "--seed", "3").stdout
    again = next(line for line in first.splitlines() if line.startswith("again"))
    assert check(*again.split()[3:]).stdout == first


# Files that are no program


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no such line"),
        (b"def parse_line(line):\n    return 0, 0\n", "no such line"),
        (b"# %% fraiming\n", "no such line"),
        (b"# %% framing\n", "ProtocolError is missing"),
        (b"# %% framing\ndef f(:\n", "SyntaxError"),
        (b"# %% framing\n  x = 1\n", "IndentationError"),
        (b"# %% framing\n'''", "SyntaxError"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "NUL byte"),
        (b"# %% framing\nx = '\x00'\n", "NUL byte"),
        (b"\x89PNG\r\n\x1a\n", "is not utf-8"),
        (b"# %% framing\nx = '\xe9'\n", "is not utf-8"),
        ("# %% framing\n".encode("utf-16"), "UTF-16"),
        (b"# coding: nonsense\n# %% framing\n", "cannot tell its encoding"),
        (b"# %% framing\n" + b"#" * (1 << 20), "more than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_program_fails_its_rules(client: Path, data: bytes, said: str) -> None:
    client.write_bytes(data)
    result = check(client, "--step", "framing", "--format", "json")
    verdict = verdict_of(result)
    assert (result.exit_code, result.stderr) == (1, "")
    assert (verdict["score"], verdict["max_score"]) == (0.0, 3.0)
    judged = outcomes(verdict)
    assert judged.pop("framing/defines") == "fail"
    assert set(judged.values()) == {"skipped"} and len(judged) == 8
    assert said in verdict["steps"][0]["rules"][0]["message"]
    assert len(result.stdout) < 20_000


def test_a_file_that_is_no_text_fails_every_step(client: Path) -> None:
    client.write_bytes(b"\0")
    verdict = verdict_of(check(client, "--format", "json"))
    assert [step["step"] for step in verdict["steps"]] == [step.name for step in registry.unit("receiver").steps]
    assert (verdict["score"], verdict["max_score"]) == (0.0, 20.0)


@pytest.mark.parametrize(
    "source",
    [
        REFERENCE.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + REFERENCE.encode(),
        b"# -*- coding: latin-1 -*-\n# \xe9t\xe9\n" + REFERENCE.encode("ascii", "backslashreplace"),
    ],
    ids=["CRLF", "BOM", "latin-1"],
)
def test_a_file_that_python_can_read_is_judged(client: Path, source: bytes) -> None:
    client.write_bytes(source)
    assert check(client, "--step", "framing").exit_code == 0


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    for name in ("random.py", "my client.py", "-x.py", "ünï.txt", "with\nline.py", os.fsdecode(b"\xff.py")):
        path = tmp_path / name
        path.write_text(REFERENCE)
        result = check("--step", "framing", "--seed", "1", "--", path)
        assert (result.exit_code, result.stderr) == (0, ""), name


# Nothing to judge: one line, exit status 2


def test_what_is_no_file_is_refused_in_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "missing.py", tmp_path, tmp_path / "fifo", Path(os.devnull), Path("/dev/zero")):
        for form in FORMATS:
            result = check(path, "--format", form)
            assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), (path, form)
            assert result.stderr.startswith("recovery-lab: ") and str(path) in result.stderr


def test_a_file_that_may_not_be_read_is_refused_in_one_line(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = os.open

    def forbidden(path: Any, *rest: Any, **named: Any) -> int:
        if Path(path) == client:
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, *rest, **named)

    monkeypatch.setattr(os, "open", forbidden)
    result = check(client)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"recovery-lab: {client} cannot be read: Permission denied\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--step", "framin"], "no step is called 'framin'; did you mean framing?"),
        (["--step", "framing", "--step", "Store"], "no step is called 'Store'; did you mean store?"),
        (["--step", ""], "no step is called ''; there is framing, store, atomic_apply"),
        (["--step", "qqqq\x1b[31m\n"], r"no step is called 'qqqq\\x1b[31m\n'; there is framing"),
        (["--unit", "reciever"], "no unit is called 'reciever'; did you mean receiver?"),
        (["--unit", "zzz"], "no unit is called 'zzz'; there is "),
    ],
)
def test_an_unknown_name_is_refused_in_one_line(client: Path, arguments: list[str], line: str) -> None:
    result = check(client, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"recovery-lab: {line}") and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["a.py", "b.py"], ["a.py", "--format", "xml"], ["a.py", "--seed", "x"], ["a.py", "--sandbox", "maybe"]],
)
def test_wrong_usage(arguments: list[str]) -> None:
    result = check(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("sandbox", ["auto", "off", pytest.param("require", marks=needs_sandbox)])
def test_every_sandbox_is_accepted(client: Path, sandbox: str) -> None:
    assert check(client, "--step", "framing", "--sandbox", sandbox).exit_code == 0


def test_a_sandbox_that_cannot_be_had_is_refused(client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_of_the_judge, "why_not", lambda: "the sandbox needs a thing: get it")
    done = check(client, "--step", "framing", "--sandbox", "require")
    assert (done.exit_code, done.stderr) == (2, "recovery-lab: the sandbox needs a thing: get it\n")


# Programs that misbehave, and what they leave behind


def spawned(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process."""
    return subprocess.run(
        [sys.executable, "-m", "lab.cli", "check", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding=environment.get("PYTHONIOENCODING", "utf-8"),
        timeout=90,
    )


class Marked:
    """Runs the command so that whatever it leaves behind can be told from everybody else's."""

    # The signal's action is set, because a test run in the background may ignore it.
    PROGRAM = """
import signal, sys, tempfile
signal.signal(signal.SIGINT, signal.default_int_handler)
make, mark = tempfile.mkdtemp, sys.argv.pop(1)
tempfile.mkdtemp = lambda suffix=None, prefix=None, dir=None: make(suffix, f"{prefix}{mark}-", dir)
from lab.cli import main
main(prog_name="recovery-lab")
"""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", self.PROGRAM, self.mark, "check", *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "MARK": self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: object) -> tuple[int, str, str]:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=90)
            return process.returncode, out, err

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                # The mark is in the workshop's name too, and that on the command lines of all who are shut in with it.
                ours = process.environ().get("MARK") == self.mark or self.mark in " ".join(process.cmdline())
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def folders(self) -> list[str]:
        return [found for base in ("/dev/shm", "/tmp") for found in glob.glob(f"{base}/recovery-lab-{self.mark}-*")]

    def assert_nothing_left(self) -> None:
        _, left = psutil.wait_procs(self.processes(), timeout=5)  # the killed ones may be on their way
        assert (left, self.folders()) == ([], [])

    def wait_until_at_work(self, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 30
        while not self.folders() or len(self.processes()) < 3:  # the command, the fork server, a child
            assert process.poll() is None and time.monotonic() < deadline, "waited for a child"


MISBEHAVING = {
    "endless loop": ("while True:\n    pass\n", "nothing happened for 5 s"),
    "endless wait": ("import time\ntime.sleep(1e6)\n", "nothing happened for 5 s"),
    "1 GB of output": ("import os\nfor _ in range(1024): os.write(1, b'x' * (1 << 20))\n", "File too large"),
    "1 GB of prints": ("for _ in range(1 << 14): print('x' * 65536)\n", "File too large"),
    "1 GB of errors": ("import sys\nfor _ in range(1 << 14): sys.stderr.write('x' * 65536)\n", "File too large"),
    "too much memory": ("x = bytearray(10**11)\n", "MemoryError"),
    "os._exit": ("import os\nos._exit(0)\n", "the process ended by itself: exit status 0"),
    "sys.exit": ("import sys\nsys.exit()\n", "SystemExit"),
    "SIGKILL": ("import os\nos.kill(os.getpid(), 9)\n", "ended by SIGKILL"),
    "interrupt": ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
    "standard input": ("input()\n", "EOFError"),
    "orphans": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(1e6)\n",
        "ProtocolError is missing",
    ),
    "threads": ("import threading, time\nthreading.Thread(target=time.sleep, args=(1e6,)).start()\n", "is missing"),
    "closed descriptors": ("import os\nos.closerange(0, 256)\n", "the process ended by itself"),
    "lies to the judge": ("import os\nos.write(3, b'{}\\n' * 3)\n", ""),
    "floods the judge": ("import os\nwhile True: os.write(3, b'x' * 65536)\n", "too much for the judge"),
    "hostile message": ("raise ValueError('\\x1b[31m<script>\\ud800\\x00')\n", "ValueError"),
}


@pytest.mark.parametrize("kind", MISBEHAVING)
def test_a_program_that_misbehaves_fails_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    source, said = MISBEHAVING[kind]
    path = tmp_path / "client.py"
    path.write_text(HEAD + source)
    marked = Marked()
    status, out, err = marked.run(path, "--step", "framing", "--format", "json")
    verdict = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(verdict)
    assert (status, err, verdict["score"]) == (1, "", 0.0)
    assert said in verdict["steps"][0]["rules"][0]["message"]
    marked.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_it_in_one_line_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "client.py"
    path.write_text(HEAD + "import os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(1e6)\n")
    marked = Marked()
    with marked.start(path, "--format", "json") as process:
        marked.wait_until_at_work(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (128 + number, "")
    assert err == f"recovery-lab: ended by {number.name}, nothing judged\n"
    marked.assert_nothing_left()


def test_a_signal_ends_rules_that_are_judged_side_by_side(client: Path) -> None:
    client.write_text(HEAD + "class ProtocolError(ValueError): ...\ndef parse_line(line):\n    while True: pass\n")
    marked = Marked()
    with marked.start(client, "--step", "framing") as process:
        deadline = time.monotonic() + 30
        while len(marked.processes()) < 5:  # several children: past the first rule
            assert process.poll() is None and time.monotonic() < deadline, "waited for several children"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (130, "") and err.count("\n") == 1
    marked.assert_nothing_left()


# Where the report goes


def test_a_full_disk_is_said_and_is_no_verdict(client: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lab.cli", "check", str(client), "--step", "framing"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 3
    assert done.stderr == "recovery-lab: the report cannot be written: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_the_report_is_readable_in_any_encoding(client: Path, encoding: str) -> None:
    client.write_text(HEAD + "class ProtocolError(ValueError): ...\ndef parse_line(line): return 'é', '\\u2028'\n")
    done = spawned(client, "--step", "framing", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (1, "")
    assert re.search(r"^ +1\. [|│] +parse_line", done.stdout, re.MULTILINE)


def on_a_terminal(arguments: Sequence[object], **environment: str) -> str:
    """What the command shows on a terminal, both streams together."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "lab.cli", "check", *map(str, arguments)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"} | environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # Linux reports the end of a terminal as an error
            while data := os.read(ours, 65536):
                shown += data
        os.close(ours)
        assert process.wait(60) == 0
    return shown.decode()


def test_a_terminal_gets_colour_and_progress(client: Path) -> None:
    shown = on_a_terminal([client, "--step", "framing", "--seed", "1"])
    assert "framing: 8 of 8 rules" in shown
    progress, _, report = shown.rpartition("\r\x1b[K")
    assert "\x1b[32m" in report and "\x1b[32m" not in progress
    assert "framing" in report and "of 8 rules" not in report


def test_no_color_means_no_colour(client: Path) -> None:
    shown = on_a_terminal([client, "--step", "framing", "--seed", "1"], NO_COLOR="1")
    report = shown.rpartition("\r\x1b[K")[2]
    assert "\x1b" not in report and report.startswith("pass  framing")


def test_starting_imports_neither_jupyter_nor_the_judge() -> None:
    program = (
        "import sys, lab.cli_check\n"
        "print({name.partition('.')[0] for name in sys.modules} & {'IPython', 'nbformat', 'jinja2', 'graders'})"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("set()\n", "")
