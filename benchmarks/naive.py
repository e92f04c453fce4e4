"""What one would write first: a new interpreter for every life of the program, and a kill at its N-th line.

It asks the same question as `reconnect/killed_anywhere` with nothing of the judge's: a session of three events, ended
at a line, started again, and ledger and total compared in the end. It works in memory and as many at once as the judge
does, so that the two differ in their way of killing only.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from graders.engine.explore import KILLS_AT_ONCE

AT_ONCE = KILLS_AT_ONCE
EVENTS = [(0, 7), (1, -2), (2, 4)]
DEADLINE = 30.0  # seconds for one life

# Counts the lines of client.py as they run; at line number `kill` the process ends itself. Prints the count otherwise.
TRACED = """
import os, runpy, signal, sys
client, kill = sys.argv[1], int(sys.argv[2])
count = 0
def trace(frame, event, argument):
    global count
    if frame.f_code.co_filename != client:
        return None
    if event == "line":
        count += 1
        if count == kill:
            os.kill(os.getpid(), signal.SIGKILL)
    return trace
sys.argv = [client, *sys.argv[3:]]
sys.settrace(trace)
try:
    runpy.run_path(client, run_name="__main__")
finally:
    sys.settrace(None)
    print(count)
"""


def points_per_second(client: Path, points: int) -> float:
    """Kill at `points` of the session's lines, spread evenly, and restart each time."""
    with tempfile.TemporaryDirectory(prefix="naive-", dir=_memory()) as folder:
        lines = int(_life(client, Path(folder, "count.db"), 0).stdout.splitlines()[-1])
        chosen = [1 + lines * number // points for number in range(points)]
        started = time.perf_counter()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(lambda line: _crash_and_recover(client, Path(folder, f"{line}.db"), line), chosen):
                pass
        return points / (time.perf_counter() - started)


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _crash_and_recover(client: Path, store: Path, line: int) -> None:
    first = _life(client, store, line)
    assert first.returncode == -9, f"line {line}: the kill did not fire: {first}"
    again = _life(client, store, 0)
    assert again.returncode == 0, again
    con = sqlite3.connect(store)
    found = con.execute("SELECT last, total, (SELECT count(*) FROM ledger) FROM checkpoint").fetchone()
    con.close()
    assert found == (2, 9, 3), f"killed at line {line}: {found}"


def _life(client: Path, store: Path, kill: int) -> subprocess.CompletedProcess[str]:
    """One life of the program, ended at its line number `kill` (0: not at all), with a publisher for it alone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE)
        publisher = threading.Thread(target=_publish, args=(listener,), daemon=True)
        publisher.start()
        arguments = [str(kill), "127.0.0.1", str(listener.getsockname()[1]), str(store)]
        done = subprocess.run(
            [sys.executable, "-I", "-c", TRACED, str(client), *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        _wake(listener)
        publisher.join(DEADLINE)
    return done


def _wake(listener: socket.socket) -> None:
    """A program that was ended before it connected leaves the publisher waiting: connect in its place."""
    with socket.create_connection(listener.getsockname(), timeout=DEADLINE):
        pass


def _publish(listener: socket.socket) -> None:
    """Serve one session: everything after the cursor, one event at a time, each after the ACK of the one before."""
    peer, _ = listener.accept()
    peer.settimeout(DEADLINE)
    with peer, peer.makefile("rb") as lines:
        try:
            resume = lines.readline()
            if resume.endswith(b"\n"):
                for seq, delta in EVENTS[int(resume.split()[1]) + 1 :]:
                    peer.sendall(b"EVENT %d %d\n" % (seq, delta))
                    if lines.readline() != b"ACK %d\n" % seq:
                        return
        except (ConnectionResetError, BrokenPipeError):
            pass  # that is what happens when the other side is ended
