"""Puts a link to a secret where the judge reads what the program has said last."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os

class ProtocolError(ValueError):
    pass


def parse_line(line):
    for name in os.listdir('.'):
        if name.endswith('.err'):
            os.unlink(name)
            os.symlink('/nowhere/canary/file', name)
    os._exit(1)
