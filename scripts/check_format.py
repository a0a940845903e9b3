#!/usr/bin/env python3
"""C++ and CUDA sources are formatted as clang-format 14 formats them with .clang-format."""

import concurrent.futures
import os
import subprocess
import sys

import source_text

TOOL = "clang-format-14"


def is_formatted(item):
    path, text = item
    result = subprocess.run([TOOL, f"--assume-filename={source_text.ROOT / path}"], input=text.encode(),
                            capture_output=True, cwd=source_text.ROOT)
    return result.returncode == 0 and result.stdout == text.encode()


def check(texts):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        formatted = list(pool.map(is_formatted, texts.items()))
    return [f"{path}: not formatted; run ./dev fmt" for path, good in zip(texts, formatted) if not good]


FAULTS = {
    "indent": {"src/core/a.cpp": "int f() {\n      return 1;\n}\n"},
    "pointer": {"src/core/a.hpp": "void f(int *a);\n"},
}
CLEAN = {"src/core/a.cpp": "int f() { return 1; }\n"}


def main():
    def wanted(name):
        return name.endswith((".cpp", ".hpp", ".h", ".c", ".cu", ".cuh"))

    return source_text.run_check(check, source_text.read_files(wanted), FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
