"""Prints the frames of so many exchanges as pymodbus builds them, each in hexadecimal on a line of
its own: traffic.py EXCHANGES SEED."""

import random
import sys

from pymodbus.framer import FramerRTU
from pymodbus.pdu import DecodePDU, ExceptionResponse, bit_message as bits, register_message as registers
from pymodbus.pdu import diag_message as diag, file_message as files, mei_message as mei, other_message as other

GET, CLEAR = 3, 4  # operations of Modbus Plus
random.seed(int(sys.argv[2]))
framer = FramerRTU(DecodePDU(True))


def coils(n):
    return [random.random() < 0.5 for _ in range(n)]


def words(n):
    return [random.choice((0, random.randrange(1 << 16))) for _ in range(n)]


def exchange(unit):
    """A request, and its answer, of a function that the specification calls public."""
    at, one = random.randrange(0x700), random.randrange(1 << 16)
    many, few = random.randrange(1, 126), random.randrange(1, 100)
    u = {"dev_id": unit}
    a = u | {"address": at}
    return random.choice((
        lambda: (bits.ReadCoilsRequest(**a, count=8 * few), bits.ReadCoilsResponse(**u, bits=coils(8 * few))),
        lambda: (bits.ReadDiscreteInputsRequest(**a, count=8 * few),
                 bits.ReadDiscreteInputsResponse(**u, bits=coils(8 * few))),
        lambda: (registers.ReadHoldingRegistersRequest(**a, count=many),
                 registers.ReadHoldingRegistersResponse(**u, registers=words(many))),
        lambda: (registers.ReadInputRegistersRequest(**a, count=many),
                 registers.ReadInputRegistersResponse(**u, registers=words(many))),
        lambda: 2 * (bits.WriteSingleCoilRequest(**a, bits=coils(1)),),
        lambda: 2 * (registers.WriteSingleRegisterRequest(**a, registers=[one]),),
        lambda: (bits.WriteMultipleCoilsRequest(**a, bits=coils(8 * few)),
                 bits.WriteMultipleCoilsResponse(**a, count=8 * few)),
        lambda: (registers.WriteMultipleRegistersRequest(**a, registers=words(few)),
                 registers.WriteMultipleRegistersResponse(**a, count=few)),
        lambda: 2 * (registers.MaskWriteRegisterRequest(**a, and_mask=one, or_mask=0xFFFF ^ one),),
        lambda: (registers.ReadWriteMultipleRegistersRequest(
                    **u, read_address=at, read_count=many, write_address=at, write_registers=words(few)),
                 registers.ReadWriteMultipleRegistersResponse(**u, registers=words(many))),
        lambda: 2 * (diag.ReturnQueryDataRequest(message=random.randbytes(2 * random.randrange(1, 20)), **u),),
        lambda: (diag.ReturnBusMessageCountRequest(**u), diag.ReturnBusMessageCountResponse(message=one, **u)),
        lambda: 2 * (diag.GetClearModbusPlusRequest(message=CLEAR, **u),),
        lambda: (diag.GetClearModbusPlusRequest(message=GET, **u),
                 diag.GetClearModbusPlusResponse(message=[GET, *words(55)], **u)),
        lambda: (other.ReadExceptionStatusRequest(**u), other.ReadExceptionStatusResponse(status=one & 0xFF, **u)),
        lambda: (other.GetCommEventCounterRequest(**u), other.GetCommEventCounterResponse(count=one, **u)),
        lambda: (other.GetCommEventLogRequest(**u),
                 other.GetCommEventLogResponse(event_count=few, events=list(random.randbytes(few % 64)), **u)),
        lambda: (files.ReadFifoQueueRequest(**a), files.ReadFifoQueueResponse(values=words(many % 32), **u)),
        lambda: (mei.ReadDeviceInformationRequest(read_code=1, **u),
                 mei.ReadDeviceInformationResponse(read_code=1, information={0: "one", 1: "of", 2: "V%d" % few}, **u)),
        lambda: (files.ReadFifoQueueRequest(**a), ExceptionResponse(0, 1, device_id=unit)),
    ))()


for _ in range(int(sys.argv[1])):
    request, answer = exchange(random.randrange(1, 248))
    if random.random() < 0.1:
        answer = ExceptionResponse(request.function_code, random.randrange(1, 5), device_id=request.dev_id)
    for pdu in (request, answer):
        print(framer.buildFrame(pdu).hex())
