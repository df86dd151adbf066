"""A steady load through CuPy: half-precision matrix products of about 5 ms an iteration. See load.py.

Runs by itself under any Python that has CuPy, so it imports nothing of this project.
"""

import json
import signal
import struct
import sys
import time

SIZE = 4096
AIM = 0.005


def main() -> int:
    try:
        import cupy

        capability = cupy.cuda.Device().compute_capability
    except Exception as error:  # whatever an import or the first call runs into is the answer
        print(f"{type(error).__name__}: {error}".splitlines()[0])
        return 3
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    a = cupy.random.standard_normal((SIZE, SIZE), dtype=cupy.float32).astype(cupy.float16)
    b = cupy.random.standard_normal((SIZE, SIZE), dtype=cupy.float32).astype(cupy.float16)
    c = cupy.empty_like(a)

    def iterate(products: int) -> float:
        began = time.monotonic()
        for _ in range(products):
            cupy.matmul(a, b, out=c)
        cupy.cuda.Device().synchronize()
        return time.monotonic() - began

    iterate(5)
    products = max(1, round(AIM / (min(iterate(10) for _ in range(3)) / 10)))
    iterate(products)
    what = f"CuPy {cupy.__version__}, {products} float16 products of {SIZE} x {SIZE} an iteration"
    print(json.dumps({"load": what, "tensor": int(capability) >= 70}), flush=True)
    until = time.monotonic() + float(sys.argv[2])
    with open(sys.argv[1], "wb") as out:
        while not ended and time.monotonic() < until:
            took = iterate(products)
            out.write(struct.pack("<dd", time.monotonic(), took))
    return 0


if __name__ == "__main__":
    sys.exit(main())
