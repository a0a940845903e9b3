#!/usr/bin/env python3
"""No include points to a higher layer.

core <- {config, sparse, quant, platform, simd, cuda, cuda_device} <- backends <- select
<- {parallel, plugin, validation, capi} <- {models, tools, python}. src/simd, src/cuda and src/cuda_device include
only core and themselves. Folders of one
layer may include each other, but not in a circle. Includes are written from the repository's root
("src/core/env.hpp") or from include ("fovea/error.hpp"). src/select reads no fact of a device or
package and nothing of src/platform's inside: which backend suits which device is decided there.
"""

import re
import sys

import source_text

LAYERS = [
    {"core"},
    {"config", "sparse", "quant", "platform", "simd", "cuda", "cuda_device"},
    {"backends"},
    {"select"},
    {"parallel", "plugin", "validation", "capi"},
    {"models", "tools", "python"},
]
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
BUILDING_BLOCKS = {"simd", "cuda", "cuda_device"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)

# A fact read by key. platform(), text() and entries() say no single one.
FACT = re.compile(r"\bfacts(?:_|\(\))?\s*(?:\.|->)\s*(?:get|has|version|flag|integer)\s*\("
                  r"|(?:\.|->)\s*(?:version|flag|integer)\s*\(\s*\"")


def folder_of(path):
    """The layered folder of a path below src, tools or python; None elsewhere."""
    parts = path.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in ("tools", "python") else None


def find_circle(edges):
    """A circle of folders, as a list that ends where it starts; None if there is none."""
    done = set()

    def visit(folder, path):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return None
        for target in sorted(edges.get(folder, ())):
            circle = visit(target, path + [folder])
            if circle:
                return circle
        done.add(folder)
        return None

    for start in sorted(edges):
        circle = visit(start, [])
        if circle:
            return circle
    return None


def check(texts):
    complaints = []
    edges = {}
    for path, text in texts.items():
        source = folder_of(path)
        public = path.startswith("include/")
        if source is not None and source not in LEVEL:
            complaints.append(f"{path}: src/{source} has no layer; give it one in scripts/check_layers.py")
            continue
        code = source_text.code_only(text, keep_strings=True)
        if source == "select":
            for match in FACT.finditer(code):
                where = f"{path}:{code.count(chr(10), 0, match.start()) + 1}"
                complaints.append(f"{where}: src/select reads a fact; policy belongs to src/platform")
        for match in INCLUDE.finditer(code):
            quote, name = match.groups()
            where = f"{path}:{code.count(chr(10), 0, match.start()) + 1}"
            target = folder_of(name)
            if quote == '"' and not re.match(r"(fovea|src|tools|tests|bench|examples|python)/", name):
                complaints.append(f'{where}: "{name}" is not written from the root or from include')
            if public and (target is not None or name.startswith("tests/")):
                complaints.append(f"{where}: a public header includes {name}")
            if source is None:
                continue
            if name.startswith(("tests/", "bench/", "examples/")):
                complaints.append(f"{where}: {source} includes {name}")
            if target is None or target == source:
                continue
            if source == "select" and target == "platform":
                complaints.append(f"{where}: src/select includes {name}; it asks a Platform, fovea/platform.hpp")
            if target not in LEVEL:
                complaints.append(f"{where}: src/{target} has no layer")
            elif LEVEL[target] > LEVEL[source]:
                complaints.append(f"{where}: {source} includes {name} of the higher layer {target}")
            elif source in BUILDING_BLOCKS and target != "core":
                complaints.append(f"{where}: {source} may include only core, not {name}")
            else:
                edges.setdefault(source, set()).add(target)
    circle = find_circle(edges)
    if circle:
        complaints.append("folders include each other in a circle: " + " -> ".join(circle))
    return complaints


FAULTS = {
    "upward include": {"src/core/a.cpp": '#include "src/select/b.hpp"\n'},
    "backend in platform": {"src/platform/a.hpp": '  # include "src/backends/list.hpp"\n'},
    "test in library": {"src/core/a.cpp": '#include "tests/contract/tolerance.hpp"\n'},
    "internal in public": {"include/fovea/a.hpp": '#include "src/core/b.hpp"\n'},
    "block beyond core": {"src/simd/a.hpp": '#include "src/quant/b.hpp"\n'},
    "circle": {"src/quant/a.cpp": '#include "src/sparse/b.hpp"\n',
               "src/sparse/b.cpp": '#include "src/quant/a.hpp"\n'},
    "unknown folder": {"src/misc/a.cpp": "int a;\n"},
    "fact in selection": {"src/select/a.cpp": 'bool f() { return context.facts.has("fa4"); }\n'},
    "fact by key": {"src/select/a.cpp": 'auto f(const DeviceFacts& d) { return d.integer("sm"); }\n'},
    "policy in selection": {"src/select/a.cpp": '#include "src/platform/check.hpp"\n'},
    "relative include": {"src/core/a.cpp": '#include "b.hpp"\n'},
}
CLEAN = {
    "src/select/a.cpp": '#include "fovea/error.hpp"\n#include "src/backends/list.hpp"\n#include <vector>\n',
    "src/select/c.cpp": 'auto f(const DeviceFacts& facts) { return facts.platform(); }\n',
    "src/core/b.cpp": '// #include "src/select/a.hpp"\n#include "src/core/b.hpp"\n',
    "tools/fovea/main.cpp": '#include "src/select/explain.hpp"\n#include "tools/fovea/verbs.hpp"\n',
}


def main():
    def wanted(name):
        top = name.split("/")[0]
        return name.endswith(source_text.CPP_SUFFIXES) and top in ("src", "include", "tools", "python")

    return source_text.run_check(check, source_text.read_files(wanted), FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
