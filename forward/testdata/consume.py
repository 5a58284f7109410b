"""Reads a stream from its beginning with nats-py, and says of each subject what it had: how many
frames, the last one's sequence, and the SHA-256 of all of them. It shares no code with Tallywheel.

    python3 consume.py nats://127.0.0.1:4222 TALLYWHEEL
"""

import asyncio
import hashlib
import json
import struct
import sys

import nats


async def read(url, stream):
    nc = await nats.connect(url)
    js = nc.jetstream()
    left = (await js.stream_info(stream)).state.messages
    sub = await js.subscribe("", stream=stream, ordered_consumer=True)
    subjects, wrong, messages = {}, [], left
    while left > 0:
        m = await sub.next_msg(timeout=120)
        left -= 1
        at = subjects.setdefault(m.subject, {"frames": 0, "last": 0, "digest": hashlib.sha256()})
        prev, last, count = (int(m.headers["Tallywheel-" + name]) for name in ("Prev", "Last", "Count"))
        if prev != at["last"]:
            wrong.append(f"{m.subject}: a message follows {prev}, and {at['last']} was the last one")
        data, offset, n = m.data, 0, 0
        while offset < len(data):
            seq, _, size = struct.unpack_from("<QqI", data, offset)
            if seq <= at["last"]:
                wrong.append(f"{m.subject}: frame {seq} comes behind {at['last']}")
            at["last"], offset, n = seq, offset + 20 + size, n + 1
        if at["last"] != last or n != count or offset != len(data):
            wrong.append(f"{m.subject}: {n} frames up to {at['last']}; the headers say {count} up to {last}")
        at["frames"] += n
        at["digest"].update(data)
    await nc.close()
    for at in subjects.values():
        at["digest"] = at["digest"].hexdigest()
    return {"messages": messages, "subjects": subjects, "wrong": wrong[:10]}


print(json.dumps(asyncio.run(read(sys.argv[1], sys.argv[2]))))
