"""Makes as many files and folders as it can, some of them locked."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os

class ProtocolError(ValueError):
    pass


def parse_line(line):
    for number in range(20_000):
        open(f'{number}', 'w').close()
    os.makedirs('a/' * 400, exist_ok=True)
    os.mkdir('locked', 0)
    os._exit(0)
