"""Writes to its standard output and error without end."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os

class ProtocolError(ValueError):
    pass


def parse_line(line):
    while True:
        os.write(1, b'x' * 65536)
        os.write(2, b'\x1b[2J' * 9999)
