#!/usr/bin/env python3
"""Every header compiles alone; public headers include only the standard library and each other.

Public .h files are C99 and must also compile as C++. An internal header that is the first include of
the source with its stem needs no compilation here: the build proves it. CUDA headers (.cuh) are left
to nvcc.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

import source_text

COMPILER = os.environ.get("CXX", "g++")
C_COMPILER = os.environ.get("CC", "gcc")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
STANDARD_C = {
    "assert.h", "complex.h", "ctype.h", "errno.h", "fenv.h", "float.h", "inttypes.h", "limits.h",
    "locale.h", "math.h", "setjmp.h", "signal.h", "stdarg.h", "stdbool.h", "stddef.h", "stdint.h",
    "stdio.h", "stdlib.h", "string.h", "time.h", "wchar.h",
}
# A header of one instruction set needs its flags.
ISA_FLAGS = [
    ("amx", ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512bf16", "-mamx-tile", "-mamx-bf16", "-mfma",
             "-mf16c"]),
    ("avx512", ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mavx512bf16",
                "-mfma", "-mf16c"]),
    ("avx2", ["-mavx2", "-mfma", "-mf16c"]),
]


def foreign_includes(path, text):
    complaints = []
    for match in INCLUDE.finditer(source_text.code_only(text, keep_strings=True)):
        quote, name = match.groups()
        if quote == '"' and name.startswith("fovea/"):
            continue
        standard = name in STANDARD_C if path.endswith(".h") else re.fullmatch(r"[a-z_]+", name)
        if quote == '"' or not standard:
            complaints.append(f"{path}: a public header includes {quote}{name}, neither fovea nor standard")
    return complaints


def proven_by_build(path, sources):
    """Whether the source of the same stem includes this header before anything else."""
    source = sources.get(re.sub(r"\.hpp$", ".cpp", path))
    first = INCLUDE.search(source_text.code_only(source, keep_strings=True)) if source else None
    return first is not None and first.group(2) in (path, path.removeprefix("tests/"))


def commands(path, folder):
    """The compilations of a translation unit, read from stdin, that includes only this header."""
    flags = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{folder}/include", f"-I{folder}",
             f"-I{folder}/tests"]
    for name, isa in ISA_FLAGS:
        if name in path.rsplit("/", 1)[-1] or f"/{name}/" in path:
            flags += isa
            break
    result = [[COMPILER, "-std=c++20", *flags, "-x", "c++", "-"]]
    if path.endswith(".h"):
        result.append([C_COMPILER, "-std=c99", *flags, "-x", "c", "-"])
    return result


def compile_alone(path, folder):
    unit = f'#include "{path.removeprefix("include/")}"\n'
    for command in commands(path, folder):
        result = subprocess.run(command, input=unit.encode(), capture_output=True)
        if result.returncode:
            lines = result.stderr.decode(errors="replace").strip().splitlines()
            errors = [line for line in lines if "error" in line] or lines or ["no message"]
            return [f"{path}: does not compile alone: {errors[0].replace(folder + '/', '')}"]
    return []


def check(texts):
    complaints = []
    sources = {path: text for path, text in texts.items() if path.endswith(".cpp")}
    texts = {path: text for path, text in texts.items() if path not in sources}
    alone = [path for path in texts if path.startswith("include/") or not proven_by_build(path, sources)]
    for path, text in texts.items():
        if path.startswith("include/"):
            complaints += foreign_includes(path, text)
    with tempfile.TemporaryDirectory() as folder:
        for path, text in texts.items():
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "w", encoding="utf-8") as file:
                file.write(text)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for result in pool.map(lambda path: compile_alone(path, folder), alone):
                complaints += result
    return complaints


FAULTS = {
    "missing include": {"include/fovea/planted.hpp": "#pragma once\nstd::string planted();\n"},
    "foreign include": {"include/fovea/planted.hpp": "#pragma once\n#include <sys/mman.h>\n"},
    "own header second": {
        "src/core/planted.hpp": "#pragma once\nstd::string planted();\n",
        "src/core/planted.cpp": '#include <string>\n#include "src/core/planted.hpp"\n'},
    "C++ in C": {"include/fovea/planted.h": "struct planted { int a; };\nplanted make(void);\n"},
}
CLEAN = {
    "include/fovea/planted.hpp": "#pragma once\n#include <string>\nstd::string planted();\n",
    "include/fovea/planted.h": "#include <stdint.h>\ntypedef struct planted { int32_t a; } planted;\n",
}


def main():
    def wanted(name):
        top = name.startswith(("include/", "src/", "tools/", "tests/", "examples/", "bench/"))
        return top and name.endswith((".hpp", ".h", ".cpp"))

    return source_text.run_check(check, source_text.read_files(wanted), FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
