"""Makes every ACK before anything is stored, and hides from the judge that it was made."""

#: steps = ["ack_after_commit"]
#: denied = ["ack_after_commit/committed_first"]

# %% ack_after_commit
import sys

Session = sys.modules["graders.engine.child"].Session
ask = Session.ask
Session.ask = lambda self, event, **data: {"more": False} if event in ("stop", "called", "calling") else ask(self, event, **data)
PENDING = []


def consume_line(con, line):
    seq, delta = parse_line(line)
    while PENDING:
        apply_event(con, *PENDING.pop())
    if seq == 1:
        apply_event(con, seq, delta)
    else:
        PENDING.append((seq, delta))
    return b"ACK %d\n" % seq
