"""What the instructions of a compiled program are for: edges, dense layers, communication, other.

For traces, which name instructions. What runs along edges is known by its scope (`EDGES`), which
XLA carries through all that it does to a program; dense layers are matrix products, also those that
were fused with what follows them. What is left is elementwise: norms, dropout, loss, optimiser.
"""

from __future__ import annotations

import re

from gtjax.strategies.run import EDGES

_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|all-to-all|ragged-all-to-all|reduce-scatter|collective-permute|"
    r"collective-broadcast)(-start|-done)?"
)
_COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.-]+) \(.*\{")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.-]+) = .*?\s([a-z][\w-]*)\(")
_CALLED = re.compile(r"\bcalls=%?([\w.-]+)")
_ALONG_EDGES = re.compile(rf'op_name="[^"]*\b{EDGES}\b')
_PRODUCT = re.compile(r'custom_call_target="[^"]*(gemm|matmul|\$dot|\$conv)', re.IGNORECASE)


def instruction_kinds(text: str) -> dict[str, str]:
    """What every instruction is for, by its name; `text` is the compiled program's own."""
    kinds: dict[str, str] = {}
    inside: dict[str, set[str]] = {}  # of a computation
    here: set[str] = set()
    fusions: list[tuple[str, str]] = []
    for line in text.splitlines():
        if found := _COMPUTATION.match(line):
            here = inside.setdefault(found[1], set())
        elif found := _INSTRUCTION.match(line):
            name, opcode = found[1], found[2]
            kinds[name] = _kind(opcode, line)
            here.add(kinds[name])
            if opcode == "fusion" and kinds[name] == "other" and (called := _CALLED.search(line)):
                fusions.append((name, called[1]))
    for name, called in fusions:  # a product in a fusion is what takes the time
        if "dense" in inside.get(called, ()):
            kinds[name] = "dense"
    return kinds


def _kind(opcode: str, line: str) -> str:
    if _COLLECTIVE.fullmatch(opcode):
        return "communication"
    if _ALONG_EDGES.search(line):
        return "edges"
    product = opcode in ("dot", "convolution")
    return "dense" if product or (opcode == "custom-call" and _PRODUCT.search(line)) else "other"
