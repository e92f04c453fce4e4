"""Ends the process with status 0 while the file is loaded."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os

os._exit(0)

class ProtocolError(ValueError):
    pass


def parse_line(line):
    return line
