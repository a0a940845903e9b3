#!/usr/bin/env python3
"""docs/backends.md, from the policy tables: gen_backends_doc.py [--check] PROGRAM

PROGRAM is the test helper platform_backends_doc, which prints the page. Writes the page; with
--check only compares.
"""

import pathlib
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "backends.md"


def main(arguments):
    check = "--check" in arguments
    programs = [argument for argument in arguments if argument != "--check"]
    if len(programs) != 1:
        sys.exit(__doc__)
    page = subprocess.run(programs, check=True, capture_output=True, text=True).stdout
    if not check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    print(f"docs/backends.md is out of date; run: python3 scripts/gen_backends_doc.py {programs[0]}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
