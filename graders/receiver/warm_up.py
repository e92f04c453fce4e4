"""What most children of this unit will do, done once before they are forked: sessions over loopback, command lines."""

from __future__ import annotations

import argparse
import asyncio
import sqlite3

SESSIONS = 3  # fewer leave bytecode that Python has not specialised yet; more change nothing that can be measured
COMMAND_LINES = 4


def warm_up() -> None:
    """Leaves no descriptor and no thread: a numeric address is not looked up."""
    for _ in range(SESSIONS):
        asyncio.run(_sessions())
    for _ in range(COMMAND_LINES):
        _command_line()
    _store()


async def _sessions() -> None:
    server = await asyncio.start_server(_publish, "127.0.0.1", 0)
    async with server:
        for _ in range(SESSIONS):
            await _receive(*server.sockets[0].getsockname())


async def _publish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    for _ in range(4):
        writer.write(b"EVENT 1 1\n")
        await reader.readline()
    writer.close()
    await writer.wait_closed()


async def _receive(host: str, port: int) -> None:
    reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port, limit=64), 5)
    writer.write(b"RESUME -1\n")
    await asyncio.wait_for(writer.drain(), 5)
    while await asyncio.wait_for(reader.readline(), 5):
        writer.write(b"ACK 1\n")
        async with asyncio.timeout(5):
            await writer.drain()
    writer.close()
    await writer.wait_closed()


def _command_line() -> None:
    parser = argparse.ArgumentParser(description="A receiver.")
    parser.add_argument("host", help="the publisher's address")
    parser.add_argument("port", type=int)
    parser.add_argument("--timeout", type=float, default=5.0)
    parser.add_argument("--exit-before-ack", type=int, metavar="SEQ")
    parser.parse_args(["127.0.0.1", "1", "--timeout", "3"])


def _store() -> None:
    with sqlite3.connect(":memory:", isolation_level=None) as con:
        con.execute("SELECT 1").fetchall()
    con.close()
