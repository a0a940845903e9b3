#!/usr/bin/env python3
"""What the shared library exports: check_exports.py STATIC_LIBRARY SHARED_LIBRARY

Both libraries hold the same objects. The shared one exports nothing but fovea_* and fovea::*, and
everything that a public header declares and the library defines: a function without FOVEA_API links
into a static program and is missing from the shared library.
"""

import re
import subprocess
import sys

import source_text

ALLOWED = re.compile(r"^(?:fovea_\w+|(?:typeinfo (?:name )?for |vtable for |guard variable for |non-virtual thunk to )?"
                     r"fovea::.*|.* fovea::[^ ]*\(.*)$")


def symbols(listing, kinds):
    """Demangled names of the given nm kinds."""
    names = set()
    for line in listing.splitlines():
        match = re.match(r"^[0-9a-f]+ ([A-Za-z]) (.*?)(?:@@.*)?$", line.strip())
        if match and match.group(1) in kinds:
            names.add(match.group(2))
    return names


def declares(header, scopes, function, parameters):
    """Whether a public header declares the function, in a class if there is one, without a body."""
    if scopes and not re.search(rf"\b(?:class|struct)\s+(?:\w+\s+)*{re.escape(scopes[-1])}\b", header):
        return False
    pattern = rf"(?<![\w:.>~])~?{re.escape(function.lstrip('~'))}\s*(\((?:[^(){{}};]|\([^()]*\))*\))[^{{}};=]*;"
    # Of overloads, the one whose first parameter has the same type of ours.
    first = re.match(r"(?:\w+::)+(\w+)", parameters)
    word = first.group(1).replace("basic_", "") if first else ""
    return any(not word or re.search(rf"\b{word}\b", match.group(1))
               for match in re.finditer(pattern, header))


def public_part(header):
    """The header without comments and without the private parts of its classes."""
    return re.sub(r"^ *private:.*?^};", "};", source_text.code_only(header), flags=re.MULTILINE | re.DOTALL)


def check(texts):
    exported = symbols(texts["shared"], "TVWBDRu")
    complaints = [f"exported, but not Fovea's: {name}" for name in sorted(exported) if not ALLOWED.match(name)]
    headers = {path: public_part(text) for path, text in texts.items() if path.startswith("include/")}
    for name in sorted(symbols(texts["static"], "T") - exported):
        match = re.match(r"^fovea::((?:\w+::)*)(~?\w+)\((.*)", name)
        if not match:
            continue
        scopes = match.group(1).split("::")[:-1]
        if scopes and scopes[0][0].islower():
            continue  # an internal namespace
        for path, header in headers.items():
            if declares(header, scopes, match.group(2), match.group(3)):
                complaints.append(f"{path}: {name} is declared without FOVEA_API")
                break
    return complaints


HEADER = """struct View {
  int size() const noexcept;
  int rank() const { return 1; }

 private:
  explicit View(State* state);
};
FOVEA_API int free_function(int a);
FOVEA_API int name(View view);
"""
STATIC = """
0000000000000000 T fovea::View::size() const
0000000000000000 T fovea::free_function(int)
0000000000000000 T fovea::View::View(fovea::State*)
0000000000000000 T fovea::name(fovea::Internal)
0000000000000000 T fovea::internal_function(int)
0000000000000000 T fovea::cpu::size()
"""
FAULTS = {
    "method without FOVEA_API": {"include/fovea/a.hpp": HEADER, "static": STATIC,
                                 "shared": "0000000000001000 T fovea::free_function(int)\n"},
    "function without FOVEA_API": {"include/fovea/a.hpp": HEADER, "static": STATIC,
                                   "shared": "0000000000001000 T fovea::View::size() const\n"},
    "foreign symbol": {"static": "", "shared": "0000000000001000 W std::vector<int>::push_back(int&&)\n"},
}
CLEAN = {"include/fovea/a.hpp": HEADER, "static": STATIC,
         "shared": "0000000000001000 T fovea::View::size() const\n"
                   "0000000000001000 T fovea::free_function(int)\n0000000000001000 T fovea_version@@V1\n"}


def nm(*arguments):
    return subprocess.run(["nm", "--demangle", "--defined-only", *arguments], check=True, text=True,
                          capture_output=True).stdout


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    texts = source_text.read_files(lambda name: name.startswith("include/"))
    texts["static"] = nm(sys.argv[1])
    texts["shared"] = nm("--dynamic", sys.argv[2])
    return source_text.run_check(check, texts, FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
