"""What tests that need a sandbox are marked with."""

from __future__ import annotations

import pytest

from graders.engine import sandbox

needs_sandbox = pytest.mark.skipif(bool(sandbox.why_not()), reason=f"no sandbox: {sandbox.why_not()}")
