"""A stand-in for a load: iterations that take about 4 ms and use no GPU. Only for the tests of the checks."""

import json
import signal
import struct
import sys
import time

ended: list[bool] = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
print(json.dumps({"load": "a stand-in that sleeps", "tensor": True}), flush=True)
until = time.monotonic() + float(sys.argv[2])
with open(sys.argv[1], "wb") as out:
    while not ended and time.monotonic() < until:
        began = time.monotonic()
        time.sleep(0.004)
        now = time.monotonic()
        out.write(struct.pack("<dd", now, now - began))
