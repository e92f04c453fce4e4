"""Writes one file after the other, as large as each may be."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import itertools

class ProtocolError(ValueError):
    pass


def parse_line(line):
    for number in itertools.count():
        try:
            with open(f'{number}', 'wb') as file:
                file.write(b'x' * (31 << 20))
        except OSError:
            return number
