"""The same file and seed, judged again and again while the machine is busy: every verdict must be the same.

    python benchmarks/repeat_verdicts.py --times 50 --load 4 [FILE …]

Without files: the reference and one wrong program of each step. Exit status 1 where any two verdicts differ.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import corpus  # noqa: E402

SPIN = "while True: pass"
JUDGE = """
import sys
from graders.judge import judge
from graders.report import text
from dataclasses import replace
from graders.verdict import Exploration
print(text.render(replace(judge(open(sys.argv[1]).read(), seed=5), exploration=Exploration())))
"""


def files_to_judge(given: list[str], folder: Path) -> list[Path]:
    if given:
        return [Path(name).resolve() for name in given]
    folder.mkdir(exist_ok=True)
    reference = corpus.reference("receiver")
    texts = {"reference": reference}
    for program in corpus.wrong_programs("receiver"):
        texts.setdefault(program.step, program.source(reference))
    for name, source in texts.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    return [folder / f"{name}.py" for name in texts]


def verdict_of(file: Path) -> str:
    """The whole report, from a process that remembers nothing."""
    command = [sys.executable, "-c", JUDGE, str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--times", type=int, default=50, help="judgements of each file")
    parser.add_argument("--load", type=int, default=4, help="processes that only burn time meanwhile")
    parser.add_argument("--at-once", type=int, default=2, help="judgements at the same time")
    options = parser.parse_args()
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        hogs = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(options.load)]
        try:
            return judge_all(files_to_judge(options.files, Path(folder)), options.times, options.at_once)
        finally:
            for hog in hogs:
                hog.kill()
                hog.wait()


def judge_all(files: list[Path], times: int, at_once: int) -> int:
    differing = 0
    for file in files:
        started = time.monotonic()
        with ThreadPoolExecutor(at_once) as pool:
            found = list(pool.map(verdict_of, [file] * times))
        distinct = sorted(set(found), key=found.count, reverse=True)
        differing += len(distinct) > 1
        seconds, load = time.monotonic() - started, os.getloadavg()[0]
        print(f"{file.stem}: {times} verdicts, {len(distinct)} distinct, {seconds:.0f} s, load {load:.1f}", flush=True)
        for text in distinct[1:]:
            print(text)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
