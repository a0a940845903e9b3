#!/usr/bin/env python3
"""The library does not read the environment, print, abort, exit or throw.

Applies to include/ and src/. Comments and strings do not count. ALLOWED names the one file where a
thing is done on behalf of everyone.
"""

import re
import sys

import source_text

FORBIDDEN = [
    ("environment", r"\b(?:secure_)?getenv\b|\bsetenv\b|\bputenv\b|\benviron\b"),
    ("print", r"\b(?:v?f?printf|v?dprintf|f?puts|f?putc|putchar|perror|fwrite)\s*\("
              r"|\bstd\s*::\s*(?:cout|cerr|clog)\b|#\s*include\s*<(?:iostream|print)>"),
    ("abort", r"\b(?:abort|terminate|__builtin_trap|__builtin_abort|raise)\s*\(|\bassert\s*\("),
    ("exit", r"\b(?:_exit|_Exit|exit|quick_exit|atexit)\s*\("),
    ("throw", r"\bthrow\b"),
    ("static registration", r"__attribute__\s*\(\(\s*(?:constructor|destructor)"),
]
FORBIDDEN = [(kind, re.compile(pattern)) for kind, pattern in FORBIDDEN]

ALLOWED = {
    ("src/core/env.cpp", "environment"),
    ("src/core/log.cpp", "print"),
    ("src/core/safetensors_writer.cpp", "print"),
}


def check(texts):
    complaints = []
    for path, text in texts.items():
        code = source_text.code_only(text)
        for kind, pattern in FORBIDDEN:
            if (path, kind) in ALLOWED:
                continue
            for match in pattern.finditer(code):
                line = code.count("\n", 0, match.start()) + 1
                complaints.append(f"{path}:{line}: {kind}: {match.group(0).strip()}")
    return complaints


FAULTS = {
    "getenv": {"src/core/a.cpp": 'auto x = std::getenv("HOME");'},
    "printf": {"src/core/a.cpp": 'void f() { printf ("x"); }'},
    "iostream": {"src/core/a.cpp": "#include <iostream>\n"},
    "cerr": {"include/fovea/a.hpp": "inline void f() { std::cerr << 1; }"},
    "abort": {"src/core/log.cpp": "void f() { std::abort(); }"},
    "exit": {"src/core/env.cpp": "void f() { exit(1); }"},
    "throw": {"src/core/a.cpp": "void f() { throw 1; }"},
    "constructor": {"src/core/a.cpp": "__attribute__((constructor)) void f() {}"},
    "after a string": {"src/core/a.cpp": 'const char* a = "//"; void f() { abort(); }'},
    "after a separator": {"src/core/a.cpp": "int a = 1'000; void f() { abort(); } int b = 2'000;"},
}
CLEAN = {
    "src/core/a.cpp": '// getenv, throw\nauto a = "printf(1)"; int n = std::snprintf(b, 1, "x"); '
                      "/* abort() */ bool exit_code(int); static_assert(true);",
    "src/core/env.cpp": "auto x = std::getenv(name);",
}


def main():
    def wanted(name):
        return name.startswith(("src/", "include/")) and name.endswith(source_text.CPP_SUFFIXES)

    texts = source_text.read_files(wanted)
    return source_text.run_check(check, texts, FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
