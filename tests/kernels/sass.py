"""How long the loops of a kernel are in the machine code of a GPU, without a disassembler.

An instruction takes 16 bytes. A branch backwards that is taken on a condition ends a loop. (Seen
with nvdisasm 13.4 in code for sm_80 and sm_90a; later ones encode branches as sm_90a does.)
"""

from __future__ import annotations

import struct

_SIZE = 16
_BRANCH = 0x947
_ALWAYS = 7  # the predicate


def loop_lengths(cubin: bytes, kernel: str, architecture: str) -> list[int]:
    """Instructions in each loop of a kernel, in the order of where they end."""
    code, found = _section(cubin, f".text.{kernel}"), []
    for at in range(0, len(code), _SIZE):
        (word,) = struct.unpack_from("<Q", code, at)
        if word & 0xFFF == _BRANCH and word >> 12 & 7 != _ALWAYS:
            distance = _distance(word, architecture)
            if distance < 0:
                found.append(-distance // _SIZE)
    return found


def _distance(word: int, architecture: str) -> int:
    """From the end of a branch to where it goes, in bytes."""
    if architecture < "sm_9" and len(architecture) == len("sm_80"):
        return word - (1 << 64) >> 32 if word >> 63 else word >> 32
    high = word - (1 << 64) >> 34 if word >> 63 else word >> 34
    return 4 * (high << 8 | word >> 16 & 0xFF)


def _section(elf: bytes, name: str) -> bytes:
    """The bytes of a section of an ELF file of 64 bits."""
    (headers,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)

    def header(number: int) -> tuple[int, int, int]:
        at = headers + number * size
        (name_at,) = struct.unpack_from("<I", elf, at)
        return name_at, *struct.unpack_from("<QQ", elf, at + 0x18)

    _, names_at, _ = header(names)
    for number in range(count):
        name_at, start, length = header(number)
        first = names_at + name_at
        if elf[first : elf.index(b"\0", first)].decode() == name:
            return elf[start : start + length]
    raise ValueError(f"there is no section {name}")
