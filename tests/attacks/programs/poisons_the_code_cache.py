"""Puts other code where the judge keeps compiled programs, whole and broken."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import glob
import marshal
import os

class ProtocolError(ValueError):
    pass


def parse_line(line):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    evil = marshal.dumps(compile("class ProtocolError(ValueError): pass\nparse_line = lambda line: (0, 7)", "x", "exec"))
    for number, path in enumerate(glob.glob(os.path.join(here, "*.code"))):
        os.unlink(path)
        with open(path, "wb") as file:
            file.write(evil if number % 2 else b"nothing that marshal knows")
    return line
