#!/usr/bin/env python3
"""Runs one file of unittest cases: run_unittest.py [--skip REASON] TEST.py RESULT.xml

Prints what unittest prints and leaves the cases in RESULT.xml, in the form that
scripts/summarize_tests.py reads. With --skip every case counts as skipped, as when the file itself
raises unittest.SkipTest.
"""

import argparse
import importlib.util
import pathlib
import sys
import unittest
import xml.etree.ElementTree as ElementTree


def leaf_cases(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from leaf_cases(item)
        else:
            yield item


class RecordingResult(unittest.TextTestResult):
    """Remembers the outcome of every case; a failed subTest fails its case."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.states = {}

    def note(self, test, state, text=""):
        if self.states.get(test.id(), ("", ""))[0] != "failure":
            self.states[test.id()] = (state, text)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passed")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "failure", str(error[1]))

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "failure", str(error[1]))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.note(test, "failure", str(error[1]))


def write_results(path, states):
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name=pathlib.Path(path).stem)
    for identity, (state, text) in states.items():
        class_name, _, name = identity.rpartition(".")
        case = ElementTree.SubElement(suite, "testcase", classname=class_name, name=name)
        if state != "passed":
            ElementTree.SubElement(case, state, message=text)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skip", metavar="REASON")
    parser.add_argument("test")
    parser.add_argument("result")
    arguments = parser.parse_args()
    if arguments.skip:
        name = pathlib.Path(arguments.test).stem
        write_results(arguments.result, {f"{name}.all": ("skipped", arguments.skip)})
        print(arguments.skip)
        return 0
    path = pathlib.Path(arguments.test)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except unittest.SkipTest as reason:
        write_results(arguments.result, {f"{path.stem}.all": ("skipped", str(reason))})
        print(reason)
        return 0
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    if not list(leaf_cases(suite)):
        print(f"{path} has no test cases")
        return 1
    result = unittest.TextTestRunner(verbosity=2, resultclass=RecordingResult).run(suite)
    write_results(arguments.result, result.states)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
