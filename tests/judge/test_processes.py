"""Children end, whatever they do; their ends are known for certain; and nothing of them stays."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sandboxed import needs_sandbox

from graders.engine.probes import AS_COMMAND, AS_MAIN
from graders.engine.processes import KILLED, Crew, Detail, Ending, Job, Method, Stops, Workshop
from graders.engine.program import Program
from graders.engine.rules import Case
from graders.engine.sections import Line

METHODS: tuple[Method, ...] = ("fork", "spawn")
WAYS = [
    *(pytest.param((method, False), id=method) for method in METHODS),
    *(pytest.param((method, True), id=f"{method}-shut-in", marks=needs_sandbox) for method in METHODS),
]


@pytest.fixture(params=WAYS)
def workshop(request: pytest.FixtureRequest) -> Iterator[Workshop]:
    method, shut_in = request.param
    with Workshop(method, shut_in=shut_in) as workshop:
        yield workshop
        folder, server = workshop.folder, workshop.server.pid
    assert not folder.exists()
    assert not psutil.pid_exists(server)


def job_for(workshop: Workshop, source: str, **options: object) -> Job:
    folder = workshop.new_folder()
    (folder / "client.py").write_text(source)
    return Job(folder=folder, probe=AS_MAIN, load=False, **options)  # type: ignore[arg-type]


def run(workshop: Workshop, source: str, **options: object) -> tuple[Ending, list[str], str]:
    with workshop.start(job_for(workshop, source, **options)) as child:
        events = [str(message["event"]) for message in child.messages()]
        return child.ending(), events, child.standard_error()


@pytest.mark.parametrize(
    ("source", "ending", "events"),
    [
        ("pass", Ending(0), ["unwound"]),
        ("import sys; sys.exit(5)", Ending(5), ["unwound"]),
        ("import sys; sys.exit('no')", Ending(1), ["unwound"]),
        ("1 / 0", Ending(1), ["unwound"]),
        ("import os; os._exit(17)", Ending(17), []),
        ("import os; os.kill(os.getpid(), 9)", KILLED, []),
        ("import os; os.abort()", Ending(0, signal.SIGABRT), []),
    ],
)
def test_how_a_process_ended_is_known(workshop: Workshop, source: str, ending: Ending, events: list[str]) -> None:
    assert run(workshop, source)[:2] == (ending, events)


def test_a_traceback_goes_to_standard_error_as_python_writes_it(workshop: Workshop) -> None:
    assert "ZeroDivisionError" in run(workshop, "1 / 0")[2]


def test_a_real_command_ends_as_any_command_does(workshop: Workshop) -> None:
    folder = workshop.new_folder()
    (folder / "client.py").write_text("import sys\nprint(sys.argv[1:], file=sys.stderr)\nsys.exit(3)")
    with workshop.start(Job(folder=folder, probe=AS_COMMAND, load=False, argv=["a", "b"])) as child:
        assert list(child.messages()) == []
        assert child.ending() == Ending(3)
        assert child.standard_error() == "['a', 'b']\n"


def test_a_child_that_never_ends_is_ended(workshop: Workshop) -> None:
    source = "import signal\nfor number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)\nwhile True: pass"
    with workshop.start(job_for(workshop, source, patience=0.5)) as child:
        assert child.next_message() is None
        assert child.timed_out
        assert child.ending() == KILLED


def test_what_a_child_leaves_running_is_ended(workshop: Workshop) -> None:
    source = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        open('pid.txt', 'w').write(str(os.getpid()))\n"
        "        os.rename('pid.txt', 'pid')\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "while not os.path.exists('pid'): time.sleep(0.005)\n"
    )
    run(workshop, "pass")  # the server is up, and has no child
    alone = family(workshop)
    assert run(workshop, source)[0] == Ending(0)
    deadline = time.monotonic() + 10
    while left := family(workshop) - alone:
        assert time.monotonic() < deadline, f"{left} still run"
        os.sched_yield()


def test_a_locked_folder_is_removed_and_what_a_link_names_is_left_alone(workshop: Workshop, tmp_path: Path) -> None:
    before = tmp_path.stat().st_mode
    source = (
        f"import os\nos.makedirs('a/b/c')\nos.symlink({str(tmp_path)!r}, 'a/link')\n"
        "for path in ('a/b/c', 'a/b', 'a'): os.chmod(path, 0)"
    )
    assert run(workshop, source)[0] == Ending(0)
    workshop.__exit__()
    assert not workshop.folder.exists()
    assert tmp_path.stat().st_mode == before


def test_what_a_killed_judge_left_is_swept_up() -> None:
    with Workshop("fork") as workshop:
        base = workshop.folder.parent
        left, fresh = (Path(tempfile.mkdtemp(prefix="recovery-lab-", dir=base)) for _ in range(2))
        (left / "1").mkdir()
        os.utime(left, (0, 0))
        os.utime(workshop.folder, (0, 0))
        with Workshop("fork"):
            assert not left.exists()
            assert workshop.folder.exists() and fresh.exists()
        fresh.rmdir()


def family(workshop: Workshop) -> set[int]:
    """All processes of the workshop, by their numbers outside."""
    below = psutil.Process(workshop.server.pid).children(recursive=True)
    return {each.pid for each in below if still_runs(each.pid)}


def gone_by(pid: int, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while still_runs(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        os.sched_yield()


def still_runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_children_end_with_the_judge(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            workshop = Workshop("fork").__enter__()
            child = workshop.start(job_for(workshop, "import time; time.sleep(600)"))
            (tmp_path / "pids.txt").write_text(f"{child.pid} {workshop.server.pid} {workshop.folder}")
            (tmp_path / "pids.txt").rename(tmp_path / "pids")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    child_pid, server, folder = (tmp_path / "pids").read_text().split()
    gone_by(int(child_pid))
    gone_by(int(server))
    assert not Path(folder).exists()


def test_a_child_has_nothing_of_the_judges_environment(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_COURSE", "42")
    source = "import os, sys\nsys.stderr.write(' '.join(sorted(os.environ)))"
    assert "SECRET" not in run(workshop, source)[2]


def test_a_child_has_no_descriptor_of_the_servers(workshop: Workshop) -> None:
    source = (
        "import os, sys\n"
        "found = []\n"
        "for fd in range(4, 200):\n"
        "    try: os.fstat(fd)\n"
        "    except OSError: continue\n"
        "    found.append(fd)\n"
        "sys.stderr.write(repr(found))"
    )
    _, _, errors = run(workshop, source)
    assert len(eval(errors)) <= 1  # the spawned interpreter's control socket has a number of its own


SOURCE = "def work():\n    a = 1\n    b = 2\n    return a + b\n\nwork()\n"


@pytest.mark.parametrize("detail", ["line", "instruction"])
def test_a_kill_fires_exactly_where_it_was_asked_for(workshop: Workshop, detail: Detail) -> None:
    stops = []
    with workshop.start(job_for(workshop, SOURCE, stops=Stops("pause", detail=detail))) as child:
        for message in child.messages():
            if message["event"] == "stop":
                stops += [tuple(at) for at in (*message["unseen"], message["at"])]
                child.go_on()
    assert [stop[0] for stop in stops if stop[1] == "line"] == [1, 6, 2, 3, 4]
    assert (len(stops) > 10) is (detail == "instruction")
    for stop in stops:
        with workshop.start(job_for(workshop, SOURCE, stops=Stops("kill", stop, detail))) as child:
            (message,) = child.messages()
            assert (message["event"], tuple(message["at"])) == ("killing", stop)
            assert child.ending() == KILLED


def test_statements_writes_and_threads_have_stops(workshop: Workshop) -> None:
    source = (
        "import socket, sqlite3, threading\n"
        "con = sqlite3.connect('x.db', isolation_level=None)\n"
        "con.executescript('CREATE TABLE t (a); BEGIN; INSERT INTO t VALUES (1); COMMIT;')\n"
        "ours, theirs = socket.socketpair(socket.AF_UNIX)\n"
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    client = socket.create_connection(server.getsockname())\n"
        "    client.sendall(b'x')\n"
        "def other():\n"
        "    return 1\n"
        "thread = threading.Thread(target=other)\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    found = []
    with workshop.start(job_for(workshop, source, stops=Stops("pause", detail="instruction"))) as child:
        for message in child.messages():
            if message["event"] == "stop":
                found.append((tuple(message["at"]), message["threads"]))
                child.go_on()
    stops = [at for at, _ in found]
    assert [at for at in stops if at[1] == "statement"] == [(3, "statement", number) for number in (1, 2, 3, 4)]
    assert [at for at in stops if at[1] == "write"] == [(7, "write", 1)]
    assert (9, "line", 1) in stops
    assert not found[0][1] and found[-1][1]


def test_a_judgement_that_is_given_up_ends_its_children(workshop: Workshop) -> None:
    crew = Crew(workshop)
    program = Program("client.py", (Line("while True: pass", 1),))
    case = Case(crew, program, 1, "x/y")
    with case.start(AS_MAIN, load=False) as child:
        assert child.pid
        crew.give_up()
        assert child.ending() == KILLED
