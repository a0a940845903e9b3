#!/usr/bin/env python3
"""docs/contract.md proves every clause: each one names tests, and those tests exist.

The same holds for the tables of tests/select/README.md, whose last column names cases, suites and
"Suite.begin*".

A clause is a heading "## N. Title". Below it stand one or more lines "Tests: `Suite.name`, ...",
each name a GoogleTest case in tests/ (TEST, TEST_F, TEST_P or TYPED_TEST). The clauses are numbered
from 1 without a gap.
"""

import re
import sys

import source_text

DOCUMENT = "docs/contract.md"
RULES = "tests/select/README.md"
CLAUSES = 16
HEADING = re.compile(r"^## (\d+)\. \S", re.MULTILINE)
TEST = re.compile(r"\b(?:TYPED_)?TEST(?:_[FP])?\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)")


def known_tests(texts):
    names = set()
    for path, text in texts.items():
        if path.startswith("tests/"):
            names |= {f"{suite}.{name}" for suite, name in TEST.findall(source_text.code_only(text))}
    return names


def named_tests(section):
    names = []
    for paragraph in re.findall(r"^Tests: (.*?)(?:\n\s*\n|\Z)", section, re.MULTILINE | re.DOTALL):
        names += re.findall(r"`([^`]+)`", paragraph)
    return names


def check_rules(text, tests):
    """Every test in the last column of the tables exists. Words in lower case are test programs."""
    suites = {test.split(".")[0] for test in tests}
    complaints = []
    for row in re.findall(r"^\| (?!(?:Rule|Row) \|)(.*) \|$", text, re.MULTILINE):
        rule, *_, cell = row.split(" | ")
        words = [word for word in re.findall(r"`([^`]+)`", cell) if word[0].isupper()]
        if not words and "`" not in cell:
            complaints.append(f"{RULES}: no test for: {rule}")
        for word in words:
            known = any(test.startswith(word[:-1]) for test in tests) if word.endswith("*") else word in tests | suites
            if not known:
                complaints.append(f"{RULES}: {word} is in no file in tests/")
    return complaints


def check(texts):
    document = texts.get(DOCUMENT)
    if document is None:
        return [f"{DOCUMENT} is missing"]
    tests = known_tests(texts)
    parts = HEADING.split(document)
    numbers = [int(number) for number in parts[1::2]]
    complaints = check_rules(texts.get(RULES, ""), tests)
    if RULES not in texts:
        complaints.append(f"{RULES} is missing")
    if numbers != list(range(1, CLAUSES + 1)):
        complaints.append(f"{DOCUMENT}: the clauses are {numbers}, not 1 to {CLAUSES}")
    for number, section in zip(numbers, parts[2::2]):
        names = named_tests(section)
        if not names:
            complaints.append(f"{DOCUMENT}: clause {number} names no test")
        complaints += [f"{DOCUMENT}: clause {number} names {name}, which no file in tests/ defines"
                       for name in names if name not in tests]
    return complaints


def sample(last=CLAUSES, tests="Tests: `Suite.holds`, `Other.holds_too`",
           rules="| it holds | `Suite.holds`, `Other`, `Suite.ho*` |"):
    clauses = "".join(f"## {number}. Title\n\nText.\n\n{tests}\n\n" for number in range(1, last + 1))
    return {DOCUMENT: "# Contract\n\n" + clauses,
            RULES: "| Rule | Tests |\n|---|---|\n" + rules + "\n",
            "tests/a_test.cpp": "TEST(Suite, holds) {}\nTEST_P(Other, holds_too) {}\n"}


FAULTS = {
    "missing document": {},
    "missing clause": sample(last=CLAUSES - 1),
    "clause without test": sample(tests=""),
    "missing rules": {name: text for name, text in sample().items() if name != RULES},
    "rule without test": sample(rules="| it holds | surely |"),
    "rule with an unknown test": sample(rules="| it holds | `Suite.gone` |"),
    "rule with an unknown suite": sample(rules="| it holds | `Gone` |"),
    "rule with an unknown beginning": sample(rules="| it holds | `Suite.go*` |"),
    "unknown test": sample(tests="Tests: `Suite.gone`"),
    "commented test": {**sample(), "tests/a_test.cpp": "// TEST(Suite, holds)\nTEST_P(Other, holds_too) {}"},
}
CLEAN = sample()


def main():
    def wanted(name):
        return name in (DOCUMENT, RULES) or (name.startswith("tests/") and name.endswith((".cpp", ".hpp", ".cu")))

    return source_text.run_check(check, source_text.read_files(wanted), FAULTS, CLEAN)


if __name__ == "__main__":
    sys.exit(main())
