"""Fixtures of the notebook tests: one kernel for each worker, an empty folder for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_kernel import Kernel


@pytest.fixture(scope="session")
def _kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.close()


@pytest.fixture
def kernel(_kernel: Kernel, tmp_path: Path) -> Kernel:
    """A kernel with the lab loaded, in the test's own empty folder, with a namespace of its own."""
    _kernel.run("%reset -f")
    assert _kernel.run(f"import os; os.chdir({str(tmp_path)!r})\n%reload_ext lab").clean
    return _kernel
