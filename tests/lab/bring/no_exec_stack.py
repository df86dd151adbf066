"""Mark a shared object of tcc as one that needs no executable stack: `no_exec_stack.py ARGUMENTS OF THE COMPILER`.

tcc writes no PT_GNU_STACK header, which means an executable stack, and glibc from 2.41 on loads no such object. The
table of program headers is written again at the end of the file, with that header (elf(5)).
"""

import struct
import sys
from pathlib import Path

PT_GNU_STACK, READ_WRITE = 0x6474E551, 6
PROGRAM_HEADERS = (32, "<Q")  # offset and form of e_phoff in a 64-bit header, little endian
SIZES = (54, "<HH")  # of e_phentsize and e_phnum


def marked(data: bytes) -> bytes:
    """Return an ELF file with a PT_GNU_STACK header; any other file as it is."""
    if data[:6] != b"\x7fELF\x02\x01":
        return data
    (start,) = struct.unpack_from(PROGRAM_HEADERS[1], data, PROGRAM_HEADERS[0])
    size, count = struct.unpack_from(SIZES[1], data, SIZES[0])
    headers = [data[start + size * number : start + size * (number + 1)] for number in range(count)]
    if any(struct.unpack_from("<I", each)[0] == PT_GNU_STACK for each in headers):
        return data
    padded = bytearray(data + bytes(-len(data) % 8))
    struct.pack_into(PROGRAM_HEADERS[1], padded, PROGRAM_HEADERS[0], len(padded))
    struct.pack_into("<H", padded, SIZES[0] + 2, count + 1)
    return bytes(padded) + b"".join(headers) + struct.pack("<IIQQQQQQ", PT_GNU_STACK, READ_WRITE, 0, 0, 0, 0, 0, 16)


def main(arguments: list[str]) -> int:
    output = Path(arguments[arguments.index("-o") + 1])
    output.write_bytes(marked(output.read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
