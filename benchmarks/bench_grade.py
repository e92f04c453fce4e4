"""Grading a class: `recovery-lab grade` beside nbgrader's stock autograde, on the same submissions, in one run.

    python benchmarks/bench_grade.py                  stock, the batch, and the batch again with nothing changed
    python benchmarks/bench_grade.py --memory         the batch's memory with 40 and with 1,000 small submissions
    python benchmarks/bench_grade.py --dask           a cluster of one worker and of two, each kept to one core

Every student hands in seven notebooks with a program of their own: of ten, six have solved all, two have one mistake
from the collection of wrong programs, one stopped half-way, one handed in what was handed out. No test asserts a time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import corpus  # noqa: E402
import nbgrader_run  # noqa: E402
from classes import STEPS, new_class, sign  # noqa: E402
from nbgrader_run import UNIT, solve  # noqa: E402

from benchmarks.machine import say_machine  # noqa: E402

STOCK_TARGET = 6.0  # times as many submissions a minute as stock
AGAIN_TARGET = 50.0  # the same, with nothing changed
DASK_TARGET = 1.7  # times as many with two workers as with one
KINDS = ("solved",) * 6 + ("mistaken",) * 2 + ("half", "empty")
RUN = 7200.0  # seconds that any one command may take
START = 60.0  # seconds until a scheduler is there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=40, help="submissions (40)")
    parser.add_argument("--memory", action="store_true", help="measure memory instead")
    parser.add_argument("--dask", action="store_true", help="measure a cluster instead")
    options = parser.parse_args()
    say_machine()
    with tempfile.TemporaryDirectory(prefix="bench-grade-") as folder:
        if options.memory:
            memory(Path(folder))
        elif options.dask:
            cluster(Path(folder), options.students)
        else:
            beside_stock(Path(folder), options.students)
    say_machine()


# ------------------------------------------------------------------------------------------------------ submissions


def fill(submitted: Path, release: Path, count: int) -> None:
    for number in range(count):
        folder = submitted / f"s{number:04}" / UNIT
        shutil.copytree(release / UNIT, folder)
        write(folder, KINDS[number % len(KINDS)], number)
        sign(folder, f"student {number}")


def write(folder: Path, kind: str, number: int) -> None:
    wrong = corpus.wrong_programs(UNIT)
    mistake = wrong[number * 37 % len(wrong)]
    for step in {"empty": (), "half": STEPS[:3]}.get(kind, STEPS):
        change = (mistake.old, mistake.new) if kind == "mistaken" and mistake.step == step else ("", "")
        solve(folder, step, change)


# --------------------------------------------------------------------------------------------------------- commands


def seconds(folder: Path, *arguments: str) -> float:
    """Run `python <arguments>` in `folder`; anything but success ends the benchmark."""
    started = time.perf_counter()
    nbgrader_run.run(folder, *arguments, deadline=RUN)
    return time.perf_counter() - started


def grade(course: Path, *arguments: str) -> float:
    return seconds(course, "-m", "lab", "grade", UNIT, "--course", str(course), *arguments)


def row(name: str, count: int, taken: float) -> float:
    a_minute = count / taken * 60
    print(f"  {name:<44} {taken:8.1f} s   {a_minute:8.1f} submissions a minute", flush=True)
    return a_minute


def verdict(name: str, ratio: float, target: float) -> None:
    print(f"  {name:<44} {ratio:8.1f} times   target {target:g}: {'met' if ratio >= target else 'MISSED'}", flush=True)


def beside_stock(folder: Path, count: int) -> None:
    print(f"{count} submissions of seven notebooks, two workers, all kills done")
    course = new_class(folder / "course", {})
    fill(course / "submitted", course / "release", count)
    ours = row("recovery-lab grade", count, grade(course, "--workers", "2"))
    again = row("recovery-lab grade, nothing changed", count, grade(course))

    stock_course = nbgrader_run.new_course(folder / "stock")
    nbgrader_run.nbgrader(stock_course, "generate_assignment", UNIT)
    shutil.copytree(course / "submitted", stock_course / ".course" / "submitted")
    stock = row("stock nbgrader autograde", count, seconds(stock_course, "-m", "nbgrader", "autograde", UNIT))
    verdict("as many as stock", ours / stock, STOCK_TARGET)
    verdict("as many as stock, nothing changed", again / stock, AGAIN_TARGET)
    same(nbgrader_run.grades(course, "gradebook.db"), nbgrader_run.grades(stock_course))


def same(ours: dict[str, nbgrader_run.Grades], stock: dict[str, nbgrader_run.Grades]) -> None:
    """Both give the same points; the inputs differ, so that a mistake may show with one seed and not with another."""
    different = [
        f"{student} {step}: {ours[student][step][0]} here, {stock[student][step][0]} there"
        for student in ours
        for step in STEPS
        if ours[student][step][0] != stock[student][step][0]
    ]
    print(f"  automatic grades that differ from stock's: {len(different)} of {len(ours) * len(STEPS)}")
    for line in different:
        print(f"    {line}")


# ------------------------------------------------------------------------------------------------ memory, a cluster


def memory(folder: Path) -> None:
    print("peak memory of any process of the batch; each student hands in one unwritten notebook")
    course = new_class(folder / "course", {})
    peaks = {}
    for count in (40, 1000):
        for number in range(count):
            target = course / "submitted" / f"s{number:04}" / UNIT
            if not target.exists():
                target.mkdir(parents=True)
                shutil.copy(next(iter(sorted((course / "release" / UNIT).glob("*.ipynb")))), target)
                sign(target, f"student {number}")
        command = [sys.executable, "-m", "lab", "grade", UNIT, "--course", str(course), "--again"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        peaks[count] = usage.ru_maxrss / 1024
        print(f"  {count:5} students   {peaks[count]:8.1f} MiB", flush=True)
    print(f"  growth {peaks[1000] / peaks[40]:.2f} times")


def cluster(folder: Path, count: int) -> None:
    print(f"{count} submissions on a Dask cluster; each worker is kept to a core of its own, as if it were a machine")
    course = new_class(folder / "course", {})
    fill(course / "submitted", course / "release", count)
    speeds = []
    for cores in ([0], [0, 1]):
        for kept in (".verdicts", ".graded"):
            shutil.rmtree(course / kept, ignore_errors=True)
        with dask(folder / f"cluster-{len(cores)}", cores) as address:
            taken = grade(course, "--scheduler", address, "--workers", str(len(cores)))
        speeds.append(row(f"{len(cores)} workers", count, taken))
    verdict("as many with two workers", speeds[1] / speeds[0], DASK_TARGET)


@contextmanager
def dask(folder: Path, cores: Sequence[int]) -> Iterator[str]:
    """The address of a scheduler with a worker on each of the cores."""
    folder.mkdir()
    where = folder / "scheduler.json"
    host = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(where)]
    started = [start("distributed.cli.dask_scheduler", *host, "--port", "0", core=None)]
    try:
        deadline = time.monotonic() + START
        while not where.exists():
            assert time.monotonic() < deadline, "the scheduler does not come up"
            time.sleep(0.05)
        for core in cores:
            options = ["--nthreads", "1", "--local-directory", str(folder), "--name", str(core)]
            started.append(start("distributed.cli.dask_worker", *host, *options, core=core))
        yield str(json.loads(where.read_text())["address"])
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(timeout=START)


def start(module: str, *arguments: str, core: int | None) -> subprocess.Popen[bytes]:
    """A process of the cluster, kept to one core if one is given; so is all that it starts."""
    pinned = ["taskset", "--cpu-list", str(core)] if core is not None else []
    return subprocess.Popen(
        [*pinned, sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    main()
