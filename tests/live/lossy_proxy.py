"""A TCP proxy on a router between hosts: it adds delay, stalls, resets, and parts hosts from each other.

    python lossy_proxy.py PORT SETTINGS.json

The settings are looked at again all the time: {"target": "10.0.0.2:9443", "delay": 0.02, "stall": 0.05, "reset": 0.01,
"cut": ["10.0.3.2"]}. What TCP loses it sends again, so that loss is a stall to those who use it, or the end of a
connection; a host that is cut off hears nothing, and is not told so.
"""

import asyncio
import json
import random
import sys
from pathlib import Path

STALL = 0.4  # seconds, about what a lost segment costs
CHANCE = random.Random(0)


class Proxy:
    def __init__(self, settings):
        self.settings = settings

    def read(self):
        return json.loads(Path(self.settings).read_text())

    async def carry(self, reader, writer, peer, reset):
        while data := await reader.read(16384):
            told = self.read()
            while peer in told["cut"]:
                await asyncio.sleep(0.1)
                told = self.read()
            await asyncio.sleep(told["delay"] + (STALL if CHANCE.random() < told["stall"] else 0.0))
            if CHANCE.random() < told["reset"]:
                reset()
                return
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def accept(self, reader, writer):
        peer, told = writer.get_extra_info("peername")[0], self.read()
        while peer in told["cut"]:
            await asyncio.sleep(0.1)
            told = self.read()
        host, _, port = told["target"].rpartition(":")
        try:
            there_reader, there = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return

        def reset():
            writer.transport.abort()
            there.transport.abort()

        ways = [self.carry(reader, there, peer, reset), self.carry(there_reader, writer, peer, reset)]
        await asyncio.gather(*ways, return_exceptions=True)
        reset()


async def main(port, settings):
    server = await asyncio.start_server(Proxy(settings).accept, "0.0.0.0", int(port))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
