"""Threads that wait for each other, and a main thread that waits for them."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import threading

class ProtocolError(ValueError):
    pass


def parse_line(line):
    lock = threading.Lock()
    lock.acquire()
    for _ in range(9):
        threading.Thread(target=lock.acquire).start()
    lock.acquire()
