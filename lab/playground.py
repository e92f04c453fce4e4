"""For the cells in which learners try out what they wrote: an unfinished function is one sentence, not a traceback."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator


@contextlib.contextmanager
def try_out() -> Iterator[None]:
    """Run the lines of a `with` block; say so in one line where they reach something that is not written yet.

    Any other error comes out as it is: a learner wants to see those.
    """
    try:
        yield
    except NotImplementedError as unwritten:
        name = traceback.extract_tb(unwritten.__traceback__)[-1].name
        print(f"{name} is not written yet. Write it in the %%step cell, run that cell, then run this one again.")
    except NameError as missing:
        print(f"{missing.name} is not here yet. Run the %%step cell above, then run this one again.")
