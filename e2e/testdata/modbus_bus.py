"""A bus on which pymodbus speaks: a master, a device that is there, and one that is not.

The first line is a port of this machine. Whoever connects to it hears what is on the bus. The last
line says, as JSON, what was there: requests, answered ones, and those that another one followed. It needs pymodbus 3.10 or
later: its exit code is 3 where that is not there.
"""

import asyncio
import json
import sys

try:
    import pymodbus
    from pymodbus import FramerType
    from pymodbus.client import AsyncModbusTcpClient
    from pymodbus.datastore import ModbusDeviceContext, ModbusSequentialDataBlock, ModbusServerContext
    from pymodbus.server import ModbusTcpServer
except ImportError as e:
    print("pymodbus 3.10 or later:", e)
    sys.exit(3)

THERE, ABSENT = 1, 2


class Bus:
    """Passes on what master and device send, but to the device that is absent, and writes down who spoke."""

    def __init__(self, device, listener):
        self.device, self.listener, self.spoke = device, listener, ""

    async def carry(self, source, target, who):
        while data := await source.read(4096):
            if who == "Q" or not self.spoke.endswith("A"):
                self.spoke += who
            self.listener.write(data)
            await self.listener.drain()
            if data[0] != ABSENT:
                target.write(data)
        target.close()

    async def connect(self, reader, writer):
        device_reader, device_writer = await asyncio.open_connection("127.0.0.1", self.device)
        await asyncio.gather(self.carry(reader, device_writer, "Q"), self.carry(device_reader, writer, "A"))


async def serve():
    """Starts the device that is there. Returns its port."""
    block = ModbusSequentialDataBlock(1, list(range(1000)))
    device = ModbusDeviceContext(di=block, co=block, hr=block, ir=block)
    context = ModbusServerContext(devices={THERE: device}, single=False)
    server = ModbusTcpServer(context, framer=FramerType.RTU, address=("127.0.0.1", 0))
    asyncio.create_task(server.serve_forever())
    for _ in range(600):
        if server.transport:
            return server.transport.sockets[0].getsockname()[1]
        await asyncio.sleep(0.05)
    raise TimeoutError("the device does not listen")


async def main():
    heard = asyncio.Queue()
    ear = await asyncio.start_server(lambda _, writer: heard.put(writer), "127.0.0.1", 0)
    print(ear.sockets[0].getsockname()[1], flush=True)
    bus = Bus(await serve(), await heard.get())
    wire = await asyncio.start_server(bus.connect, "127.0.0.1", 0)
    port = wire.sockets[0].getsockname()[1]
    master = AsyncModbusTcpClient("127.0.0.1", port=port, framer=FramerType.RTU, timeout=1, retries=1)
    await master.connect()
    for n in range(24):
        unit = {"device_id": ABSENT if n in (5, 8, 15, 18) else THERE}
        try:
            match n % 6:
                case 0:
                    await master.read_holding_registers(n, count=1 + n, **unit)
                case 1:
                    await master.write_register(n, 1000 + n, **unit)
                case 2:
                    await master.read_coils(n, count=20, **unit)
                case 3:
                    await master.write_registers(n, [n] * 5, **unit)
                case 4:
                    await master.write_coil(n, True, **unit)
                case 5:
                    await master.read_input_registers(2000, count=2, **unit)  # an exception
        except pymodbus.ModbusException as e:  # no answer
            print(n, e)
        if not master.connected:
            await master.connect()
    master.close()
    bus.listener.close()
    await bus.listener.wait_closed()
    said = {"requests": bus.spoke.count("Q"), "answered": bus.spoke.count("QA"), "unanswered": sum(q == "QQ" for q in map("".join, zip(bus.spoke, bus.spoke[1:])))}
    print(json.dumps(said | {"version": pymodbus.__version__}), flush=True)


asyncio.run(main())
