#!/usr/bin/env python3
"""Counts test cases after ctest: summarize_tests.py RESULTS_DIRECTORY

Reads ctest.xml (one entry per test program) and the <program>.xml that each GoogleTest or unittest
program left, prints the failures and the reasons of skips, and ends with the line
"N passed, N failed, N skipped". A program that failed without naming a failed case (a crash, a
timeout) counts as one failure. Exit code 1 if anything failed or nothing ran.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def skip_reason(text):
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(r"^\S+:\d+$", line)]
    return lines[-1] if lines else "no reason given"


def read_cases(path):
    """[(name, state, reason)] of a program's own result file; None if it is missing or broken."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    cases = []
    for case in root.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            cases.append((name, "failed", ""))
        elif case.get("status") == "notrun" or case.get("result") == "suppressed":
            continue
        elif skipped is not None:
            cases.append((name, "skipped", skip_reason(skipped.get("message") or skipped.text)))
        else:
            cases.append((name, "passed", ""))
    return cases


def entry_output(entry):
    output = entry.find("system-out")
    return output.text if output is not None else ""


def collect(results):
    """[(name, state, reason)] over all programs."""
    cases = []
    for entry in ElementTree.parse(results / "ctest.xml").getroot().iter("testcase"):
        name, status = entry.get("name"), entry.get("status")
        own = read_cases(results / f"{name}.xml")
        if own is not None:
            cases += own
            if status == "fail" and not any(state == "failed" for _, state, _ in own):
                cases.append((name, "failed", ""))
        elif status == "run":
            cases.append((name, "passed", ""))
        elif status in ("notrun", "disabled") and entry.find("skipped") is not None:
            message = entry.find("skipped").get("message") or ""
            if "SKIP_RETURN_CODE" in message:
                cases.append((name, "skipped", skip_reason(entry_output(entry))))
            else:
                cases.append((name, "failed", message))
        else:
            cases.append((name, "failed", ""))
    return cases


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    results = pathlib.Path(sys.argv[1])
    if not (results / "ctest.xml").exists():
        print("0 passed, 1 failed, 0 skipped")
        return 1
    cases = collect(results)
    count = collections.Counter(state for _, state, _ in cases)
    reasons = collections.Counter(reason for _, state, reason in cases if state == "skipped")
    for name, state, reason in cases:
        if state == "failed":
            print(f"failed: {name}{' (' + reason + ')' if reason else ''}")
    for reason, number in reasons.most_common():
        print(f"skipped {number}: {reason}")
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
