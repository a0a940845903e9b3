#!/usr/bin/env python3
"""Every registered backend name is finished: its page, its rows and its tests exist.

A name of src/core/backend_name.cpp needs docs/backends/<name>.md with the sections Installation, Fallback, Quality and
Tuning, each with text; its row in the matrix of docs/backends.md; and its row in tests/platform/every_name_test.cpp,
which chooses it by name, by default and where it cannot run. Part of every build with tests.
"""

import re
import sys

import source_text

NAMES = "src/core/backend_name.cpp"
MATRIX = "docs/backends.md"
TESTS = "tests/platform/every_name_test.cpp"
PAGES = "docs/backends/"
SECTIONS = ("Installation", "Fallback", "Quality", "Tuning")


def check(texts):
    names = re.findall(r"BackendNameInfo\{\s*backend::(\w+)", source_text.code_only(texts.get(NAMES, "")))
    if not names:
        return [f"{NAMES}: no names found"]
    complaints = []
    rows = set(re.findall(r"\{\s*([A-Z][A-Z0-9_]+)\s*,\s*P::", source_text.code_only(texts.get(TESTS, ""))))
    for name in names:
        page = texts.get(f"{PAGES}{name.lower()}.md")
        if page is None:
            complaints.append(f"{name}: no page {PAGES}{name.lower()}.md")
        else:
            for section in SECTIONS:
                if not re.search(rf"^## {section}\n\n(?!## ).{{10}}", page, re.MULTILINE):
                    complaints.append(f"{PAGES}{name.lower()}.md: no section '{section}' with text")
        if not re.search(rf"^\| \[?`{name}`", texts.get(MATRIX, ""), re.MULTILINE):
            complaints.append(f"{MATRIX}: no row of {name}")
        if name not in rows:
            complaints.append(f"{TESTS}: no row of {name} (explicit, default, incompatible)")
    return complaints


def sample(**changes):
    page = "# A_ATTN\n" + "".join(f"\n## {section}\n\nSome text of it.\n" for section in SECTIONS)
    texts = {NAMES: 'BackendNameInfo{backend::A_ATTN, "A_ATTN", {}, "x"},', MATRIX: "\n| `A_ATTN` | x |\n",
             TESTS: '{A_ATTN, P::cuda, "sm=90"},', PAGES + "a_attn.md": page}
    texts.update(changes)
    return {name: text for name, text in texts.items() if text is not None}


FAULTS = {
    "no page": sample(**{PAGES + "a_attn.md": None}),
    "no section": sample(**{PAGES + "a_attn.md": sample()[PAGES + "a_attn.md"].replace("## Quality", "## Speed")}),
    "empty section": sample(**{PAGES + "a_attn.md": sample()[PAGES + "a_attn.md"].replace("Some text of it.", "")}),
    "no row": sample(**{MATRIX: "| `A_ATTN_2` |"}),
    "no test": sample(**{TESTS: '// {A_ATTN, P::cuda, "sm=90"},'}),
    "no names": sample(**{NAMES: ""}),
}
CLEAN = sample()


def main():
    # Not by git: a build may come from an archive.
    files = [source_text.ROOT / name for name in (NAMES, MATRIX, TESTS)]
    files += sorted((source_text.ROOT / PAGES).glob("*.md"))
    texts = {str(file.relative_to(source_text.ROOT)): file.read_text(encoding="utf-8") for file in files}
    return source_text.run_check(check, texts, FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
