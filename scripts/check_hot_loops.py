#!/usr/bin/env python3
"""The register tile of cpu_flash stays in registers: check_hot_loops.py LIST

LIST has a line "isa object" for every object built for one instruction set. In every instance of
tile_multiply the innermost loops that multiply may not touch the stack, and in the full tiles the main one may not take
more instructions per multiply-add than stated here: 12 (AVX2) or 16 (AVX-512) multiply-adds need 4 or
8 broadcasts and 3 or 2 loads, and a quarter of a loop's own instructions.
"""

import re
import subprocess
import sys

import source_text

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(.*)$")
JUMP = re.compile(r"^j\w+\s+([0-9a-f]+)\b")
TILE = re.compile(r"tile_multiply<.*::(\w+)::Vec>, (\d+),")
# Vectors of a full tile, and instructions per multiply-add.
LIMITS = {"avx2": (3, 1.7), "avx512": (2, 1.9), "avx512bf16": (2, 1.9)}


def functions(listing):
    """Yields (name, [(address, instruction)])."""
    name, body = None, []
    for line in listing.splitlines():
        match = FUNCTION.match(line)
        if match:
            if name:
                yield name, body
            name, body = match.group(1), []
            continue
        match = INSTRUCTION.match(line)
        if match:
            body.append((int(match.group(1), 16), match.group(2)))
    if name:
        yield name, body


def multiplying_loops(body):
    """The innermost loops with multiply-adds, as lists of instructions."""
    index = {address: i for i, (address, _) in enumerate(body)}
    loops = []
    for i, (_, text) in enumerate(body):
        match = JUMP.match(text)
        if match and index.get(int(match.group(1), 16), i + 1) <= i:
            loops.append((index[int(match.group(1), 16)], i))
    for loop in loops:
        if any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in loops):
            continue
        texts = [text for _, text in body[loop[0]:loop[1] + 1]]
        if sum("vfmadd" in text or "vdpbf16" in text for text in texts) > 1:
            yield texts


def check(texts):
    """texts: {"isa object": objdump listing}."""
    complaints = []
    for key, listing in texts.items():
        path, found = key.split(" ", 1)[1], 0
        for name, body in functions(listing):
            tile = TILE.search(name)
            if not tile:
                continue
            costs = []
            for loop in multiplying_loops(body):
                found += 1
                if any("(%rsp" in text or "(%rbp" in text for text in loop):
                    complaints.append(f"{path}: {name[:110]} spills in its inner loop")
                costs.append(len(loop) / sum("vfmadd" in text or "vdpbf16" in text for text in loop))
            vectors, limit = LIMITS.get(tile.group(1), (0, 0))
            # The cheapest loop is the one of four steps; the others take what is left.
            if int(tile.group(2)) == vectors and costs and min(costs) > limit:
                complaints.append(f"{path}: {name[:110]}: {min(costs):.2f} instructions per multiply-add, "
                                  f"at most {limit}")
        if not found:
            complaints.append(f"{path}: no inner loop of tile_multiply found")
    return complaints


def planted(extra, products=48):
    lines = ["0000000000000000 <void tile_multiply<F32Products<fovea::simd::avx2::Vec>, 3, (Finish)0>(int)>:"]
    body = ["vfmadd231ps %ymm1,%ymm2,%ymm3"] * products + extra + ["jg     0 <tile_multiply>"]
    return "\n".join(lines + [f"  {4 * i:x}:\t{text}" for i, text in enumerate(body)]) + "\n"


FAULTS = {
    "spill": {"avx2 a.o": planted(["vmovaps %ymm3,0x20(%rsp)"])},
    "too many instructions": {"avx2 a.o": planted(["vmovaps (%rdi),%ymm1"] * 60)},
    "nothing to look at": {"avx2 a.o": "0000000000000000 <run>:\n  0:\tret\n"},
}
CLEAN = {"avx2 a.o": planted(["vbroadcastss (%rdi),%ymm1"] * 16)}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    texts = {}
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file.read().splitlines():
            if re.search("cpu_flash.kernels_", line) and not line.startswith("amx "):
                texts[line] = subprocess.run(
                    ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", line.split(" ", 1)[1]],
                    check=True, text=True, capture_output=True).stdout
    return source_text.run_check(check, texts, FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
