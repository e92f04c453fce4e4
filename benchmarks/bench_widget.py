"""What a store view costs that is left open: memory while another process is busy with the store, time while nobody is.

python benchmarks/bench_widget.py                 ten minutes: five with a busy writer, five with nothing to see
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.machine import say_machine  # noqa: E402
from graders.receiver.ledger import make_store  # noqa: E402
from lab.widgets.store_view import StoreView  # noqa: E402

CORE_TARGET = 2.0  # percent of a core while nothing changes
WRITER = """
import sqlite3, sys, time
con = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
end = time.monotonic() + float(sys.argv[2])
seq = con.execute("SELECT last FROM checkpoint").fetchone()[0]
while time.monotonic() < end:
    seq += 1
    con.execute("BEGIN IMMEDIATE")
    con.execute("INSERT INTO ledger (seq, delta) VALUES (?, 1)", (seq,))
    con.execute("UPDATE checkpoint SET last = ?, total = total + 1", (seq,))
    con.execute("COMMIT")
    time.sleep(0.05)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="of each of the two halves (5)")
    seconds = parser.parse_args().minutes * 60
    say_machine()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        make_store(path)
        view = StoreView(path)
        view.send = lambda *_, **__: None  # type: ignore[method-assign]  # there is no browser
        view.greet("one")
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(seconds)])
        half("a writer commits 20 times a second", seconds, view)
        writer.wait()
        idle = half("nothing changes", seconds, view)
        print(f"  target while nothing changes: {CORE_TARGET:g} %: {'met' if idle <= CORE_TARGET else 'MISSED'}")
        view.close()
    say_machine()


def half(name: str, seconds: float, view: StoreView) -> float:
    """Watch for so long; the share of a core that it took, in percent."""
    time.sleep(2)  # what is done once is done
    before, began, worked = memory(), time.monotonic(), time.process_time()
    time.sleep(seconds - 2)
    share = 100 * (time.process_time() - worked) / (time.monotonic() - began)
    print(
        f"  {name:<36} {share:5.2f} % of a core, memory {before:.1f} to {memory():.1f} MiB, "
        f"{view.count} states seen, {len(view.moments)} kept",
        flush=True,
    )
    return share


def memory() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


if __name__ == "__main__":
    main()
