"""`python3 -m lab` on machines of all kinds: each start is a real process, in a small clone that installs in seconds.

The clone has this repository's launcher, a stand-in for `lab.cli` that reports how it was started, and one package to
install, from a folder. pip looks nowhere else than where a test says.
"""

from __future__ import annotations

import ast
import json
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import psutil
import pytest
from starts import DEADLINE, ROOT, Started, as_ordinary_user, ran, surroundings

from lab import bootstrap, cli

REPORT = "import json, sys\nprint(json.dumps([sys.argv[1:], sys.prefix]))\n"
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "recovery-lab"
version = "0.1.0"
"""
BACKEND = """\
import os, zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name, info = "recovery_lab-0.1.0-py3-none-any.whl", "recovery_lab-0.1.0.dist-info/"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("recovery_lab.pth", os.getcwd())
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: recovery-lab\\nVersion: 0.1.0\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""


class Clone:
    """A clone of the lab, and a machine's own Python to start it with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        self.packages = folder / "packages"
        self.packages.mkdir()
        (self.folder / "lab").mkdir(parents=True)
        for name in ("__init__.py", "__main__.py", "bootstrap.py"):
            shutil.copy(ROOT / "lab" / name, self.folder / "lab" / name)
        (self.folder / "lab" / "cli.py").write_text(REPORT)
        (self.folder / "pyproject.toml").write_text(PROJECT)
        (self.folder / "backend.py").write_text(BACKEND)
        # As building the project leaves it there; it says nothing about any environment.
        (self.folder / "recovery_lab.egg-info").mkdir()
        metadata = "Metadata-Version: 2.1\nName: recovery-lab\nVersion: 0.1.0\n"
        (self.folder / "recovery_lab.egg-info" / "PKG-INFO").write_text(metadata)
        self.pin("1.0")
        # The Python that runs the tests has the lab installed. One without, as a learner's has:
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", folder / "machine"], check=True, timeout=DEADLINE
        )
        self.python = folder / "machine" / "bin" / "python"

    def pin(self, version: str) -> None:
        info = f"tiny-{version}.dist-info/"
        with zipfile.ZipFile(self.packages / f"tiny-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tiny.py", f"version = {version!r}\n")
            wheel.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
            wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(info + "RECORD", "")
        (self.folder / "requirements.lock").write_text(f"# pins\ntiny=={version}\n    # via nobody\n")

    def command(self, *arguments: str) -> list[str]:
        return [str(self.python), "-m", "lab", *arguments]

    def environment(self, **changes: str) -> dict[str, str]:
        pip = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_CACHE_DIR": "1"}
        if "PIP_INDEX_URL" not in changes:
            pip |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.packages)}
        return surroundings(**pip, **changes)

    def start(self, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return ran(self.command(*arguments), self.folder, self.environment(**changes))

    def index_at(self, port: int) -> str:
        return f"http://127.0.0.1:{port}/simple"

    @property
    def venv(self) -> Path:
        return self.folder / ".venv"

    def installed(self) -> str:
        """Version of the package as the environment's own Python finds it."""
        command = [str(self.venv / "bin" / "python"), "-c", "import tiny, lab; print(tiny.version)"]
        return ran(command, self.folder.parent, surroundings()).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def reported(stdout: str) -> tuple[list[str], Path]:
    arguments, prefix = json.loads(stdout)
    return arguments, Path(prefix)


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line at the end that says what is wrong. Nothing was handed over, nothing blew up."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("recovery-lab: ")
    return last.removeprefix("recovery-lab: ")


# ----------------------------------------------------------------------------------------------- the starts


def test_first_start_installs_second_start_only_starts_and_new_pins_are_brought_in(clone: Clone) -> None:
    first = clone.start("check", "client.py", "--format", "json")
    assert first.returncode == 0, first
    assert reported(first.stdout) == (["check", "client.py", "--format", "json"], clone.venv)
    assert "Making an environment" in first.stderr and "Done in" in first.stderr
    assert clone.installed() == "1.0"

    log = (clone.venv / "install.log").stat()
    second = clone.start()
    assert (second.returncode, second.stderr) == (0, "")
    assert reported(second.stdout) == ([], clone.venv)
    assert (clone.venv / "install.log").stat() == log

    clone.pin("2.0")
    (clone.venv / "something of the user's").write_text("kept")
    third = clone.start()
    assert "up to date" in third.stderr and "Making" not in third.stderr
    assert clone.installed() == "2.0"
    assert (clone.venv / "something of the user's").exists()
    assert reported(third.stdout) == ([], clone.venv)

    # Inside the activated environment it is the same environment.
    inside = ran([str(clone.venv / "bin" / "python"), "-m", "lab", "test"], clone.folder, clone.environment())
    assert (inside.stderr, reported(inside.stdout)) == ("", (["test"], clone.venv))

    moved = clone.folder.rename(clone.folder.with_name("moved clone"))
    again = ran(clone.command(), moved, clone.environment())
    assert "it is replaced" in again.stderr
    assert reported(again.stdout) == ([], moved / ".venv")


def test_an_installation_that_was_killed_is_made_anew_while_another_start_waits(clone: Clone) -> None:
    """The first start is killed while its pip waits for an index that never answers; the second takes over."""
    with socket.create_server(("127.0.0.1", 0)) as index:
        index.settimeout(DEADLINE)
        hanging = clone.environment(PIP_INDEX_URL=clone.index_at(index.getsockname()[1]))
        with Started(clone.command("first"), clone.folder, hanging) as first:
            connection, _ = index.accept()
            pip = first.family()
            assert pip
            with Started(clone.command("second"), clone.folder, clone.environment()) as second:
                assert "Another start is installing here" in second.line_with("Another start", "stderr")
                first.process.kill()
                first.process.wait(DEADLINE)
                assert second.process.poll() is None
                assert pip[0].is_running(), "pip outlives it, and holds the lock as long as it can write"
                connection.close()
                index.close()
                assert second.ended() == 0, second.stderr
                assert "it is replaced" in second.stderr
                assert reported(second.stdout) == (["second"], clone.venv)
    assert clone.installed() == "1.0"
    assert psutil.wait_procs(pip, timeout=DEADLINE)[1] == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_installation_that_is_stopped_takes_pip_with_it(clone: Clone, number: int, status: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as index:
        index.settimeout(DEADLINE)
        hanging = clone.environment(PIP_INDEX_URL=clone.index_at(index.getsockname()[1]))
        with Started(clone.command(), clone.folder, hanging) as start:
            connection, _ = index.accept()
            pip = start.family()
            start.process.send_signal(number)
            assert start.ended() == status
            assert "Traceback" not in start.stderr
            assert pip and psutil.wait_procs(pip, timeout=DEADLINE)[1] == []
            connection.close()
    assert json.loads((clone.venv / "recovery-lab.json").read_text()) == {}


def test_an_environment_that_has_the_lab_is_used_as_it_is(clone: Clone) -> None:
    """Conda, or a plain `pip install`: no second environment is made."""
    library = sysconfig.get_path("purelib", vars={"base": str(clone.python.parents[1])})
    info = Path(library) / "recovery_lab-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: recovery-lab\nVersion: 0.1.0\n")
    done = clone.start("test", "-x")
    assert (done.returncode, done.stderr) == (0, "")
    assert reported(done.stdout) == (["test", "-x"], clone.python.parents[1])
    assert not clone.venv.exists()


def test_help_before_the_environment_installs_nothing(clone: Clone) -> None:
    done = clone.start("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: python3 -m lab")
    assert not clone.venv.exists()


def test_that_help_knows_all_verbs() -> None:
    assert tuple(cli.VERBS) == bootstrap.VERBS


# -------------------------------------------------------------------------------------------- what goes wrong


def test_what_pip_cannot_get_is_said_and_the_next_start_goes_on_from_there(clone: Clone) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    said = refusal(clone.start(PIP_INDEX_URL=clone.index_at(port)))
    assert said.startswith("no network: pip could not reach the package index (")
    assert said.endswith(f"log: {clone.venv / 'install.log'}")
    assert "Retrying" in (clone.venv / "install.log").read_text()

    (clone.packages / "tiny-1.0-py3-none-any.whl").rename(clone.packages / "away")
    said = refusal(clone.start())
    assert said.startswith("pip could not install the packages: No matching distribution found for tiny==1.0")

    (clone.packages / "away").rename(clone.packages / "tiny-1.0-py3-none-any.whl")
    done = clone.start("open")
    assert "Making" not in done.stderr
    assert reported(done.stdout) == (["open"], clone.venv)
    assert clone.installed() == "1.0"


def test_a_python_without_venv_is_said(clone: Clone, tmp_path: Path) -> None:
    """As Debian's, before python3-venv is installed."""
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "ensurepip.py").write_text("raise ImportError('No module named ensurepip')\n")
    said = refusal(clone.start(PYTHONPATH=str(tmp_path / "shadow")))
    assert said.startswith("this Python has no venv module (No module named ensurepip): on Debian or Ubuntu `sudo apt")
    assert not clone.venv.exists()


def test_a_clone_that_cannot_be_written_is_said(clone: Clone) -> None:
    clone.folder.chmod(0o555)
    try:
        done = ran(as_ordinary_user(clone.command()), clone.folder, clone.environment(PYTHONDONTWRITEBYTECODE="1"))
    finally:
        clone.folder.chmod(0o755)
    expected = f"cannot write in {clone.folder} (permission denied): copy the repository to a folder of yours"
    assert refusal(done).startswith(expected)


@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_venv_that_is_somebody_elses_is_left_alone(clone: Clone, what: str) -> None:
    theirs = clone.venv / "pyvenv.cfg" if what == "folder" else clone.venv
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("home = /usr/bin\n")
    assert refusal(clone.start()).startswith(f"{clone.venv} was made by something else: move it away")
    assert theirs.read_text() == "home = /usr/bin\n"


def test_missing_pins_are_said(clone: Clone) -> None:
    (clone.folder / "requirements.lock").unlink()
    assert refusal(clone.start()) == f"No such file or directory: {clone.folder / 'requirements.lock'}"


# ---------------------------------------------------------------------------------------- which Python it is


@pytest.mark.parametrize("version", [(3, 6), (3, 8), (3, 10)])
def test_an_old_python_is_refused(version: tuple[int, int]) -> None:
    with pytest.raises(
        bootstrap.Problem, match=rf"^this is Python 3\.{version[1]}, and the lab needs 3\.11 to 3\.13: "
    ):
        bootstrap.check_python(version)


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_the_tested_pythons_are_welcome(version: tuple[int, int]) -> None:
    assert bootstrap.check_python(version) == ""


def test_a_newer_python_is_tried_with_a_word_about_it() -> None:
    assert bootstrap.check_python((3, 14)).startswith(
        "Python 3.14 is newer than the lab was tested with (3.11 to 3.13)"
    )


def test_the_refusal_is_one_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = bootstrap.check_python
    monkeypatch.setattr(bootstrap, "check_python", lambda _: real((3, 8)))
    assert bootstrap.main(["open"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1 and said.err.startswith("recovery-lab: this is Python 3.8")


def test_the_advice_names_a_python_that_really_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version manager puts names on PATH that only say that the version is not installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.advice() == "install Python 3.13 and run `python3.13 -m lab`"
    for name, status in {"python3.13": 127, "python3.12": 0}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    assert bootstrap.advice() == "run `python3.12 -m lab`"


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py", "bootstrap.py"])
def test_an_old_python_can_read_what_runs_before_the_check(name: str) -> None:
    tree = ast.parse((ROOT / "lab" / name).read_text(encoding="utf-8"), feature_version=(3, 6))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert imported == [], "Python 3.6 does not have `annotations`"
