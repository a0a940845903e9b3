#!/usr/bin/env python3
"""Words that do not belong into a finished tree: notes to self, and paths of somebody's machine.

A path that starts at the root of a file system is accepted only below the folders that every system
has. Every text file is read, except the licence.
"""

import re
import sys

import source_text

# The parts are joined so that this file does not contain the words itself.
NOTES = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK", "WI" + "P"]) + r")\b")
SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "sys", "tmp", "usr",
          "var", "path", "nonexistent")
# The project's own folders, which code appends to a variable.
OWN = ("build", "cmake", "docs", "examples", "include", "python", "scripts", "src", "tests", "tools")
PATH = re.compile(r"""(?:^|[\s"'`(=:,>])/(?!(?:%s)\b)([a-z][a-z0-9_.-]*)/[A-Za-z0-9_.]""" % "|".join(SYSTEM + OWN))
MERGE = re.compile(r"^(?:<{7} |>{7} |={7}$)")


def check(texts):
    complaints = []
    for path, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            note = NOTES.search(line)
            if note:
                complaints.append(f"{path}:{number}: note to self: {note.group(0)}")
            if MERGE.search(line):
                complaints.append(f"{path}:{number}: conflict marker")
            machine = PATH.search(line)
            if machine:
                complaints.append(f"{path}:{number}: path of one machine: {machine.group(0).strip()}")
    return complaints


FAULTS = {
    "note": {"a.cpp": "int a;  // TO" + "DO: more\n"},
    "home": {"a.md": "see /ho" + "me/someone/file\n"},
    "quoted": {"a.py": 'open("/ro' + 'ot/x")\n'},
    "conflict": {"a.cpp": "<" * 7 + " HEAD\n"},
}
CLEAN = {
    "a.cpp": "// q/k/v, and/or, 1/2, https://host/path/x\n/* a */ #include <sys/mman.h>\n",
    "a.sh": "test -e /usr/bin/python3 && cat /proc/cpuinfo /sys/devices/system/cpu >/dev/null\n",
}


def main():
    def wanted(name):
        return name != "LICENSE" and not name.endswith((".safetensors", ".svg", ".png"))

    return source_text.run_check(check, source_text.read_files(wanted), FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
