#!/usr/bin/env python3
"""Files stay small: 6 MiB each, sources 600 lines (kernels 800), lines 100 columns where clang-format
does not decide. A longer source needs a line "long file: <reason>" among its first ten."""

import sys

import source_text

MAX_BYTES = 6 * 1024 * 1024
MAX_LINES = 600
MAX_KERNEL_LINES = 800
MAX_COLUMNS = 100
SOURCE_SUFFIXES = source_text.CPP_SUFFIXES + (".py", ".cmake", ".sh")


def line_limit(path):
    kernel = path.endswith((".cu", ".cuh")) or "/kernel" in path
    return MAX_KERNEL_LINES if kernel else MAX_LINES


def check(texts):
    """texts: {path: text, or a number of bytes for a file that is not text}."""
    complaints = []
    for path, text in texts.items():
        size = text if isinstance(text, int) else len(text.encode())
        if size > MAX_BYTES:
            complaints.append(f"{path}: {size} bytes; at most {MAX_BYTES} are allowed")
        if isinstance(text, int) or not (path.endswith(SOURCE_SUFFIXES) or path == "dev"):
            continue
        lines = text.splitlines()
        if len(lines) > line_limit(path) and "long file: " not in "\n".join(lines[:10]):
            complaints.append(f"{path}: {len(lines)} lines; at most {line_limit(path)}: is it one concept?")
        if path.endswith((".py", ".sh")) or path == "dev":
            complaints += [f"{path}:{number}: {len(line)} columns; at most {MAX_COLUMNS + 20}"
                           for number, line in enumerate(lines, 1) if len(line) > MAX_COLUMNS + 20]
    return complaints


FAULTS = {
    "big data": {"a.safetensors": MAX_BYTES + 1},
    "long source": {"src/core/a.cpp": "int a;\n" * (MAX_LINES + 1)},
    "long kernel": {"src/cuda/a.cu": "int a;\n" * (MAX_KERNEL_LINES + 1)},
    "long line": {"scripts/a.py": "a" * 200},
}
CLEAN = {
    "a.safetensors": MAX_BYTES,
    "src/cuda/a.cu": "int a;\n" * MAX_KERNEL_LINES,
    "src/core/a.cpp": "// long file: a table of names\n" + "int a;\n" * MAX_LINES,
}


def main():
    texts = {}
    for name in source_text.project_files():
        text = source_text.read_text(name)
        texts[name] = (source_text.ROOT / name).stat().st_size if text is None else text
    return source_text.run_check(check, texts, FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
