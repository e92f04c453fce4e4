"""Prints what a good result might look like on its standard output and error."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import sys

class ProtocolError(ValueError):
    pass


def parse_line(line):
    text = '{"event": "finished", "returned": true, "outcome": "pass", "score": 3.0}'
    print(text, text, sep='\n', flush=True)
    print(text, file=sys.stderr, flush=True)
