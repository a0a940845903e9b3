#!/usr/bin/env python3
"""Objects compiled for one instruction set share nothing: check_isa_symbols.py LIST

LIST has a line "isa object" for every such object. A weak symbol (an inline function, a template
instance) may be defined in many objects, and the linker keeps one copy for everyone: if it keeps one
compiled for AVX-512, the program crashes on an older processor. So every weak symbol must carry the
name of its instruction set as a namespace.
"""

import re
import subprocess
import sys

import source_text

WEAK = re.compile(r"^[0-9a-f]* ([WVu]) (.*)$")


def check(texts):
    """texts: {"isa object": nm listing}."""
    complaints = []
    for key, listing in texts.items():
        isa, path = key.split(" ", 1)
        for line in listing.splitlines():
            match = WEAK.match(line.strip())
            if match and not re.search(rf"::{re.escape(isa)}(?:::|\b)", match.group(2)):
                complaints.append(f"{path}: weak symbol outside a namespace {isa}: {match.group(2)}")
    return complaints


FAULTS = {
    "library template": {"avx2 a.o": "0000000000000000 W std::vector<int>::size() const\n"},
    "other instruction set": {"avx2 a.o": "0000000000000000 W fovea::avx512::load(float const*)\n"},
    "inline variable": {"avx2 a.o": "0000000000000000 u fovea::table\n"},
}
CLEAN = {"avx2 a.o": "0000000000000000 T fovea::run()\n0000000000000000 W fovea::avx2::load(float const*)\n"
                     "                 U std::sqrt(float)\n"}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    texts = {}
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file.read().splitlines():
            if line:
                texts[line] = subprocess.run(["nm", "--demangle", "--defined-only", line.split(" ", 1)[1]],
                                             check=True, text=True, capture_output=True).stdout
    return source_text.run_check(check, texts, FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
