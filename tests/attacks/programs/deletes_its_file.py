"""Removes its own text and its folder, and puts another one there."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os
import shutil

class ProtocolError(ValueError):
    pass


def parse_line(line):
    os.chdir('/')
    folder = os.path.dirname(os.path.abspath(__file__))
    shutil.rmtree(folder, ignore_errors=True)
    os.symlink('/nowhere/canary', folder)
    return line
