"""A steady load through PyTorch: half-precision matrix products of about 5 ms an iteration. See load.py.

Runs by itself under any Python that has PyTorch, so it imports nothing of this project.
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
        import torch
    except Exception as error:  # whatever an import runs into is the answer
        print(f"{type(error).__name__}: {error}")
        return 3
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU")
        return 3
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16)
    b = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16)
    c = torch.empty_like(a)

    def iterate(products: int) -> float:
        began = time.monotonic()
        for _ in range(products):
            torch.matmul(a, b, out=c)
        torch.cuda.synchronize()
        return time.monotonic() - began

    iterate(5)
    products = max(1, round(AIM / (min(iterate(10) for _ in range(3)) / 10)))
    iterate(products)
    what = f"PyTorch {torch.__version__}, {products} float16 products of {SIZE} x {SIZE} an iteration"
    print(json.dumps({"load": what, "tensor": torch.cuda.get_device_capability()[0] >= 7}), flush=True)
    until = time.monotonic() + float(sys.argv[2])
    with open(sys.argv[1], "wb") as out:
        while not ended and time.monotonic() < until:
            took = iterate(products)
            out.write(struct.pack("<dd", time.monotonic(), took))
    return 0


if __name__ == "__main__":
    sys.exit(main())
