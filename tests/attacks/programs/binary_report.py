"""Bytes that are no text, lines that are no objects, names that are known but mean something else."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os

class ProtocolError(ValueError):
    pass


def parse_line(line):
    os.write(3, b'\xff\xfe\x00\n[]\n{"event": {"$bytes": "x"}}\n{"$repr": "finished"}\n')
    os._exit(0)
