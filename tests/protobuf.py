"""Numbers as Protocol Buffers write them."""


def varint(number: int) -> bytes:
    """Return a number that is not negative as a base-128 varint, which Snappy uses as well."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
