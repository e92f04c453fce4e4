"""Many processes that each take a little less than a limit for one."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os
import time

class ProtocolError(ValueError):
    pass


def parse_line(line):
    for _ in range(4):
        os.fork()
    hoard = bytearray(os.urandom(1 << 20) * 400)
    time.sleep(5)
    os._exit(len(hoard) % 2)
