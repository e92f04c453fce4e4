"""The unit `receiver`: a vending machine's receiver, `client.py`."""

from graders.engine.assemble import assemble

UNIT = assemble(
    "graders.receiver",
    "client.py",
    lanes=("publisher", "receiver", "store"),
    preload=("graders.receiver.probes", "graders.receiver.warm_up"),
)
