"""`recovery-lab open` for real: JupyterLab comes up on the workspace, answers, validates, and ends without remains."""

from __future__ import annotations

import json
import re
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import websocket
from jupyter_client.blocking import BlockingKernelClient
from starts import DEADLINE, ROOT, Started, as_ordinary_user, ran, surroundings

LAB = [sys.executable, "-m", "lab.cli"]


class Page:
    """The running lab, as a browser with the printed address sees it."""

    def __init__(self, address: str) -> None:
        parts = urllib.parse.urlsplit(address)
        self.path = parts.path
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.token = urllib.parse.parse_qs(parts.query)["token"][0]

    def get(self, path: str, data: dict[str, str] | str | None = None, token: str | None = None) -> str:
        body = None if data is None else (data if isinstance(data, str) else urllib.parse.urlencode(data)).encode()
        request = urllib.request.Request(self.base + path, data=body)
        request.add_header("Authorization", f"token {self.token if token is None else token}")
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return str(answer.read().decode())

    def json(self, path: str, data: dict[str, str] | None = None) -> Any:
        return json.loads(self.get(path, data))


def hostile_home(folder: Path) -> dict[str, str]:
    """The environment of a user whose own settings would break the lab: another root, a password, no nbgrader."""
    settings = {
        "ServerApp": {"root_dir": "/", "base_url": "/elsewhere/", "jpserver_extensions": {}},
        "IdentityProvider": {"token": ""},
        "PasswordIdentityProvider": {"password_required": True, "hashed_password": "argon2:nonsense"},
    }
    settings["ServerApp"]["jpserver_extensions"] = {"nbgrader.server_extensions.validate_assignment": False}
    jupyter = folder / ".jupyter"
    (jupyter / "labconfig").mkdir(parents=True)
    (jupyter / "jupyter_server_config.json").write_text(json.dumps(settings))
    page = {"disabledExtensions": {"@jupyter/nbgrader:validate-assignment": True}}
    (jupyter / "labconfig" / "page_config.json").write_text(json.dumps(page))
    (jupyter / "nbgrader_config.py").write_text("raise SystemExit('the settings of another course')\n")
    return surroundings(HOME=str(folder))


def graded(source: str) -> dict[str, Any]:
    """A notebook with one autograded test cell."""
    grading = {"grade": True, "grade_id": "t", "locked": True, "points": 1, "schema_version": 3, "solution": False}
    grading |= {"task": False, "cell_type": "code"}
    cell = {"cell_type": "code", "execution_count": None, "id": "t", "outputs": [], "source": source}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [{**cell, "metadata": {"nbgrader": grading}}]
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("open") / "my work"


@pytest.fixture(scope="module")
def started(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """No verb, only options: that is `open`."""
    command = [*LAB, "--workspace", str(workspace), "--no-browser", "--port", "0"]
    with Started(command, ROOT, hostile_home(tmp_path_factory.mktemp("home"))) as started:
        yield started


@pytest.fixture(scope="module")
def page(started: Started) -> Page:
    found = re.fullmatch(
        r"Recovery Lab is open at (http://127\.0\.0\.1:\d+/\S+) \(.*\)\n", started.line_with("is open")
    )
    assert found, started.stdout
    return Page(found[1])


def test_it_opens_on_the_first_notebook_behind_a_token(page: Page) -> None:
    assert page.path == "/lab/tree/receiver/01_framing.ipynb"
    assert "<title>JupyterLab</title>" in page.get(page.path)
    assert len(page.token) >= 32
    with pytest.raises(urllib.error.HTTPError) as refusal:
        page.get("/api/contents", token="wrong")
    refusal.value.close()
    assert refusal.value.code == 403


def test_the_token_is_in_no_command_line(page: Page, started: Started) -> None:
    assert page.token not in " ".join(psutil.Process(started.process.pid).cmdline())


def test_only_this_machine_can_reach_it(page: Page, started: Started) -> None:
    listening = [c.laddr.ip for c in psutil.Process(started.process.pid).net_connections() if c.status == "LISTEN"]
    assert set(listening) == {"127.0.0.1"}


def test_the_files_are_the_workspace(page: Page, workspace: Path) -> None:
    names = {item["name"] for item in page.json("/api/contents/receiver")["content"]}
    assert names == {path.name for path in (ROOT / "notebooks" / "receiver").iterdir()}
    assert names <= {path.name for path in (workspace / "receiver").iterdir()}


def test_nbgraders_validate_is_there_and_works(page: Page, workspace: Path) -> None:
    shown = json.loads(page.get(page.path).split('id="jupyter-config-data"')[1].split(">", 1)[1].split("</script>")[0])
    extensions = {extension["name"] for extension in shown["federated_extensions"]}
    assert "@jupyter/nbgrader" in extensions
    disabled = set(shown["disabledExtensions"])
    assert not disabled & {"@jupyter/nbgrader:validate-assignment", "@jupyter/nbgrader:menu", "@jupyter/nbgrader"}
    assert "@jupyterlab/apputils-extension:announcements" in disabled
    for name, source in {"right": "1", "wrong": "assert False"}.items():
        (workspace / f"{name}.ipynb").write_text(json.dumps(graded(source)))
    assert page.json("/assignments/validate", {"path": "right.ipynb"}) == {"success": True, "value": {}}
    answer = page.json("/assignments/validate", {"path": "wrong.ipynb"})
    assert answer["success"]
    assert [failed["source"] for failed in answer["value"]["failed"]] == ["assert False"]


def test_a_cell_runs_as_the_browser_runs_it(page: Page) -> None:
    """Through the server's websocket to an encrypted kernel, which belongs to the environment that has the lab."""
    notebook = {"path": "receiver/01_framing.ipynb", "type": "notebook", "name": "", "kernel": {"name": "python3"}}
    kernel = json.loads(page.get("/api/sessions", json.dumps(notebook)))["kernel"]["id"]
    address = f"{page.base.replace('http', 'ws', 1)}/api/kernels/{kernel}/channels"
    browser = websocket.create_connection(address, timeout=DEADLINE, header=[f"Authorization: token {page.token}"])
    try:
        browser.send(request("%load_ext lab\nimport os, sys; print(sys.prefix, os.getcwd(), callable(check), sep='|')"))
        answer: dict[str, Any] = {"msg_type": ""}
        while answer["msg_type"] not in ("stream", "error"):
            answer = json.loads(browser.recv())
    finally:
        browser.close()
    assert answer["msg_type"] == "stream", answer["content"]
    prefix, folder, has_check = answer["content"]["text"].strip().split("|")
    assert (prefix, Path(folder).name, has_check) == (sys.prefix, "receiver", "True")


def request(code: str) -> str:
    """What JupyterLab sends to have `code` run."""
    header = {"msg_id": "1", "msg_type": "execute_request", "session": "s", "username": "", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    return json.dumps({**message, "buffers": []})


def test_an_instructors_tools_are_not_in_the_way(page: Page) -> None:
    for path in ("/formgrader", "/assignments", "/courses"):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            page.get(path)
        refusal.value.close()
        assert refusal.value.code == 404


def test_ctrl_c_ends_it_with_its_kernels_even_a_busy_one(tmp_path: Path) -> None:
    command = [*LAB, "open", "--workspace", str(tmp_path / "work"), "--no-browser", "--port", "0"]
    with Started(command, ROOT, surroundings(HOME=str(tmp_path), JUPYTER_RUNTIME_DIR=str(tmp_path / "run"))) as started:
        page = Page(started.line_with("is open").split()[5])
        kernel = page.json("/api/kernels", {})["id"]
        keep_busy(tmp_path / "run" / f"kernel-{kernel}.json")
        family = started.family()
        assert family
        assert started.interrupt() == 0
        assert psutil.wait_procs(family, timeout=DEADLINE)[1] == []
    with pytest.raises(urllib.error.URLError):
        page.get("/api")


def keep_busy(connection: Path) -> None:
    """Give a kernel something that never ends; returns when the kernel is at it."""
    client = BlockingKernelClient(connection_file=str(connection))
    client.load_connection_file()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=DEADLINE)
        client.execute("print('at it', flush=True)\nwhile True: pass")
        while client.get_iopub_msg(timeout=DEADLINE)["msg_type"] != "stream":
            pass
    finally:
        client.stop_channels()


def one_line(arguments: list[str], prefix: tuple[str, ...] = ()) -> str:
    done = ran([*prefix, *LAB, *arguments], ROOT, surroundings())
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("recovery-lab: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = one_line(["--port", str(port), "--no-browser", "--workspace", str(tmp_path / "work")])
    assert said == f"recovery-lab: port {port} is taken: choose another with --port, or leave it out\n"
    assert not (tmp_path / "work").exists()


def test_a_workspace_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    assert "is a file, not a folder" in one_line(["--workspace", str(tmp_path / "file"), "--no-browser"])


def test_a_workspace_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        done = ran(
            as_ordinary_user([*LAB, "--workspace", str(tmp_path / "work"), "--no-browser"]), ROOT, surroundings()
        )
    finally:
        tmp_path.chmod(0o755)
    assert (done.returncode, done.stdout) == (2, "")
    expected = f"recovery-lab: cannot write the workspace (Permission denied: {tmp_path / 'work'}): choose another one"
    assert done.stderr == f"{expected} with --workspace DIR\n"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--collect-only", "-q", "tests/lab/test_open.py"], 0),
        (["-n0", "tests/no_such_file.py"], 4),
        (["-n0", "--version"], 0),
    ],
)
def test_the_test_verb_is_pytest_with_its_arguments_and_its_status(arguments: list[str], status: int) -> None:
    done = ran([*LAB, "test", *arguments], ROOT, surroundings())
    assert done.returncode == status, done
    assert ("pytest" in done.stdout + done.stderr) or "test_the_test_verb" in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["open", "--help"], ["--version"]])
def test_help_is_fast_and_complete(arguments: list[str]) -> None:
    done = ran([*LAB, *arguments], ROOT, surroundings())
    assert (done.returncode, done.stderr) == (0, "")
    assert "recovery-lab" in done.stdout
