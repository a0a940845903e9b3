"""What the checks share: the project's files, C++ text without comments, and the planted faults.

A check is a function from {path: text} to a list of complaints. run_check() first runs it on planted
faults, each of which it must find, and on clean text, in which it must find nothing; only then on
the tree. So a check that has stopped working fails.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPP_SUFFIXES = (".cpp", ".hpp", ".h", ".c", ".cu", ".cuh", ".in")


def project_files():
    """Paths, relative to the root, of tracked files and of new ones that git does not ignore."""
    # Whoever owns the checkout, listing its files is safe.
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True)
    if listing.returncode:
        sys.exit("the checks need a git checkout: " + listing.stderr.decode().strip())
    names = sorted(set(listing.stdout.decode().split("\0")) - {""})
    return [name for name in names if (ROOT / name).is_file()]


def read_text(name):
    """The file's text; None for a binary file."""
    data = (ROOT / name).read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def read_files(wanted):
    texts = {name: read_text(name) for name in project_files() if wanted(name)}
    return {name: text for name, text in texts.items() if text is not None}


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)


def code_only(text, keep_strings=False):
    """C++ text with comments, and strings unless kept, replaced by blanks; lines stay in place."""

    def blank(match):
        token = match.group(0)
        if keep_strings and not token.startswith("/"):
            return token
        # Digit separators such as 1'000'000 look like characters and are left alone.
        if token.startswith("'") and match.start() and text[match.start() - 1].isalnum():
            return token
        return re.sub(r"[^\n]", " ", token)

    return _TOKEN.sub(blank, text)


def run_check(check, texts, faults, clean):
    """Exit code of a check. faults: {name: texts}, each must yield a complaint; clean: texts."""
    for name, planted in faults.items():
        if not check(planted):
            print(f"self-test: the planted fault '{name}' was not found")
            return 1
    complaints = check(clean)
    if complaints:
        print("self-test: complaint about clean text:", *complaints, sep="\n  ")
        return 1
    complaints = check(texts)
    for complaint in complaints:
        print(complaint)
    if complaints:
        print(f"{pathlib.Path(sys.argv[0]).name}: {len(complaints)} complaints")
    return 1 if complaints else 0
