#!/usr/bin/env python3
"""Copies a library without its device code for other architectures than one, so that it packs small. Python's standard library only; little-endian ELF of 64 bits.

usage: slim_fatbin.py LIBRARY OUT ARCHITECTURE

ARCHITECTURE is that of the device, such as sm_90. The code for it stays; if there is none, the code for the greatest earlier architecture of the same generation,
which runs there as well. All other code, and PTX, becomes zeros of the same length: neither headers nor addresses change, so the library loads as before.
"""

import re
import struct
import sys

MAGIC = 0xBA55ED50  # of a fat binary: the header, then entries, each a header and the code of one architecture
BINARY = 2          # kind of an entry; 1 is PTX


def sections(data):
    """(name, begin, end) of the sections that lie in the file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("it is no little-endian ELF of 64 bits")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + index * size) for index in range(count)]
    names_at = headers[names][4]
    for name, kind, _, _, begin, length in headers:
        if kind != 8:  # it takes no space in the file
            at = names_at + name
            yield bytes(data[at:data.index(b"\0", at)]).decode(), begin, begin + length


def entries(data):
    """(kind, architecture, begin, end) of the code of each entry in sections of fat binaries."""
    for name, begin, end in sections(data):
        if not re.fullmatch(r"\.nv_fatbin|__nv_relfatbin", name):
            continue
        at = begin
        while at + 16 <= end:
            magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
            if magic != MAGIC:
                at += 8  # binaries are aligned to that
                continue
            entry, stop = at + header, at + header + length
            if header < 16 or stop > end:
                raise ValueError(f"a fat binary at {at:#x} leaves its section")
            while entry < stop:
                kind, _, entry_header, code = struct.unpack_from("<HHIQ", data, entry)
                (architecture,) = struct.unpack_from("<I", data, entry + 28)
                if entry_header < 32 or entry + entry_header + code > stop:
                    raise ValueError(f"an entry at {entry:#x} leaves its fat binary")
                yield kind, architecture, entry + entry_header, entry + entry_header + code
                entry += entry_header + code
            at = stop


def slim(data, device):
    """Blanks code, and returns the architecture that stays, all architectures, and the number of bytes that became zeros."""
    found = list(entries(data))
    known = sorted({architecture for kind, architecture, _, _ in found if kind == BINARY})
    fitting = [one for one in known if one // 10 == device // 10 and one <= device]
    if not fitting:
        raise ValueError(f"it holds no code that runs on sm_{device}, but for {', '.join(f'sm_{one}' for one in known) or 'no architecture'}")
    blanked = 0
    for kind, architecture, begin, end in found:
        if kind != BINARY or architecture != fitting[-1]:
            data[begin:end] = bytes(end - begin)
            blanked += end - begin
    return fitting[-1], known, blanked


def main(arguments):
    if arguments == ["--help"]:
        print(__doc__.strip())
        return 0
    match = re.fullmatch(r"sm_(\d+)a?", arguments[2]) if len(arguments) == 3 else None
    if match is None:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    library, out, _ = arguments
    try:
        with open(library, "rb") as stream:
            data = bytearray(stream.read())
        kept, known, blanked = slim(data, int(match[1]))
        with open(out, "wb") as stream:
            stream.write(data)
    except (OSError, ValueError, struct.error, IndexError) as error:
        print(f"error: {library}: {error}", file=sys.stderr)
        return 1
    print(f"{library}: sm_{kept} of {', '.join(f'sm_{one}' for one in known)} stays; {blanked / 2**20:.0f} of {len(data) / 2**20:.0f} MiB became zeros")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
