"""What a program that is shut in can reach: its own folder, its own loopback, and nothing else."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sandboxed import needs_sandbox

from graders.engine import sandbox
from graders.engine.probes import AS_MAIN
from graders.engine.processes import Child, Ending, Job, Workshop
from graders.judge import judge
from graders.registry import unit

pytestmark = needs_sandbox
DEADLINE = 20.0  # seconds


@pytest.fixture
def workshop() -> Iterator[Workshop]:
    with Workshop("fork", shut_in=True) as workshop:
        yield workshop


def start(workshop: Workshop, source: str, **options: object) -> Child:
    folder = workshop.new_folder()
    (folder / "client.py").write_text(source)
    return workshop.start(Job(folder=folder, probe=AS_MAIN, load=False, **options))  # type: ignore[arg-type]


def said(workshop: Workshop, source: str) -> str:
    """What the program has written to its standard error."""
    with start(workshop, f"import os, sys\n{source}") as child:
        list(child.messages())
        assert child.ending() == Ending(0), child.standard_error()
        return child.standard_error()


def show(expression: str) -> str:
    return f"print({expression}, file=sys.stderr, end='')"


def attempt(statement: str) -> str:
    return f"try:\n    {statement}\nexcept OSError as error:\n    {show('error.strerror')}"


def test_files_outside_cannot_be_seen(workshop: Workshop, tmp_path: Path) -> None:
    hidden = tmp_path / "gradebook.db"
    hidden.write_text("secret")
    assert said(workshop, show(f"os.path.exists({str(hidden)!r})")) == "False"
    root = Path(__file__).resolve().parents[2]
    assert said(workshop, show(f"os.path.exists({str(root / 'solutions')!r})")) == "False"


def test_nothing_but_its_own_folder_can_be_written(workshop: Workshop) -> None:
    for path in (sandbox.__file__, "/usr/lib/new", os.path.join(os.path.dirname(os.__file__), "new.py"), "/new"):
        told = said(workshop, attempt(f"open({path!r}, 'a')"))
        assert told in ("Read-only file system", "Permission denied"), path
    assert said(workshop, f"open('mine', 'w').write('x'); {show('os.listdir()')}") != ""


def test_the_only_network_is_its_own_loopback(workshop: Workshop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        told = said(workshop, "import socket\n" + attempt(f"socket.create_connection(('127.0.0.1', {port}), 2)"))
    assert told == "Connection refused"
    assert said(workshop, f"import socket; {show('[name for _, name in socket.if_nameindex()]')}") == "['lo']"


def test_a_socket_of_the_inside_is_served_from_outside(workshop: Workshop) -> None:
    with workshop.tcp_socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        source = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 5).sendall(b'hello')"
        with start(workshop, source):
            listener.settimeout(DEADLINE)
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(5) == b"hello"


def test_other_processes_cannot_be_seen_or_ended(workshop: Workshop) -> None:
    numbers = said(workshop, show("sorted(int(name) for name in os.listdir('/proc') if name.isdigit())"))
    assert len(numbers.split(",")) <= 4  # bubblewrap, its init, the fork server and the child
    assert said(workshop, show("os.path.exists(f'/proc/{os.getppid()}')")) == "True"
    if os.geteuid() == 0:
        assert said(workshop, attempt("os.kill(os.getppid(), 9)")) == "Operation not permitted"
        assert said(workshop, attempt("open(f'/proc/{os.getppid()}/mem', 'rb')")) == "Permission denied"


def test_it_is_nobody_and_stays_that(workshop: Workshop) -> None:
    user = said(workshop, show("os.getuid()"))
    assert user not in ("0", "")
    assert said(workshop, attempt("os.setuid(0)")) == "Operation not permitted"
    assert said(workshop, show("[line.split()[1] for line in open('/proc/self/status') if 'CapEff' in line]")) == (
        "['0000000000000000']"
    )


def test_a_fork_bomb_is_small_and_gone_with_its_child(workshop: Workshop) -> None:
    source = """
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
    with start(workshop, f"import os{source}", patience=2.0) as child:
        list(child.messages())
        assert child.timed_out
    assert said(workshop, show("'still here'")) == "still here"
    pids = [each.pid for each in psutil.Process(workshop.server.pid).children(recursive=True)]
    assert len(pids) <= sandbox.LIMITS["RLIMIT_NPROC"] + 4


def test_what_many_processes_take_together_is_bounded(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MOST_MEMORY", 300 << 20)
    source = (
        "import os, time\nfor _ in range(4): os.fork()\nhoard = bytearray(os.urandom(1 << 20) * 60)\ntime.sleep(60)"
    )
    started = time.monotonic()
    with start(workshop, source, patience=30.0) as child:
        list(child.messages())
        assert child.ending() != Ending(0)
    assert time.monotonic() - started < DEADLINE


def test_what_many_files_take_together_is_bounded(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MOST_DISK", 64 << 20)
    source = """
number = 0
while True:
    number += 1
    with open(f"{number}", "wb") as file:
        file.write(b"x" * (16 << 20))
"""
    with start(workshop, source, patience=30.0) as child:
        list(child.messages())
        assert child.ending() != Ending(0)
    deadline = time.monotonic() + DEADLINE
    while sum(path.stat().st_size for path in workshop.folder.rglob("*") if path.is_file()) > sandbox.MOST_DISK:
        assert time.monotonic() < deadline, "what was written stays"
        os.sched_yield()


def test_all_of_it_ends_with_the_workshop() -> None:
    source = "import os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(60)"
    with Workshop("fork", shut_in=True) as workshop, start(workshop, source) as child:
        assert child.pid > 0
        family = psutil.Process(workshop.server.pid).children(recursive=True)
        assert len(family) >= 2
    _, alive = psutil.wait_procs(family, timeout=DEADLINE)
    assert alive == []
    assert not workshop.folder.exists()


def test_the_reference_gets_the_same_verdict_inside() -> None:
    receiver = unit("receiver")
    outside, inside = (judge(receiver.reference(), seed=5, sandbox=mode) for mode in ("off", "require"))  # type: ignore[arg-type]
    assert inside.passed
    assert inside.steps == outside.steps


def test_what_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    sandbox.why_not.cache_clear()
    try:
        assert sandbox.wanted("auto") is False and sandbox.wanted("off") is False
        with pytest.raises(sandbox.NoSandbox, match="apt install bubblewrap"):
            sandbox.wanted("require")
    finally:
        sandbox.why_not.cache_clear()
