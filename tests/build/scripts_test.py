"""The scripts that count tests: a wrong count must not look like success."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["TEST_SOURCE_DIR"])

PASSING = '<testsuites><testsuite><testcase name="a" classname="S" status="run"/></testsuite></testsuites>'
FAILING = ('<testsuites><testsuite><testcase name="a" classname="S" status="run"/>'
           '<testcase name="b" classname="S" status="run"><failure message="x"/></testcase></testsuite></testsuites>')
SKIPPING = ('<testsuites><testsuite><testcase name="a" classname="S" status="run">'
            '<skipped message="a_test.cpp:12&#x0A;no AVX-512"/></testcase></testsuite></testsuites>')


def ctest_report(*entries):
    cases = "".join(f'<testcase name="{name}" status="{status}">{body}</testcase>' for name, status, body in entries)
    return f"<testsuite>{cases}</testsuite>"


class SummarizeTests(unittest.TestCase):
    def summarize(self, report, **files):
        with tempfile.TemporaryDirectory() as folder:
            if report is not None:
                (pathlib.Path(folder) / "ctest.xml").write_text(report)
            for name, text in files.items():
                (pathlib.Path(folder) / f"{name}.xml").write_text(text)
            result = subprocess.run([sys.executable, ROOT / "scripts/summarize_tests.py", folder],
                                    capture_output=True, text=True)
        return result.returncode, result.stdout.strip().splitlines()

    def test_cases_of_a_program_are_counted(self):
        code, lines = self.summarize(ctest_report(("p", "fail", "")), p=FAILING)
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("failed: S.b", lines)

    def test_a_crash_is_a_failure(self):
        code, lines = self.summarize(ctest_report(("p", "fail", ""), ("q", "run", "")))
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_crash_after_passing_cases_is_a_failure(self):
        code, lines = self.summarize(ctest_report(("p", "fail", "")), p=PASSING)
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_skips_carry_their_reason(self):
        code, lines = self.summarize(ctest_report(("p", "run", ""), ("q", "run", "")), p=SKIPPING)
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("skipped 1: no AVX-512", lines)

    def test_a_program_that_is_missing_is_a_failure(self):
        code, lines = self.summarize(ctest_report(("p", "notrun", '<skipped message="Unable to find executable"/>')))
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_skipped_script_is_a_skip(self):
        entry = ("p", "notrun", '<skipped message="SKIP_RETURN_CODE=77"/><system-out>no GPU\n</system-out>')
        code, lines = self.summarize(ctest_report(entry, ("q", "run", "")))
        self.assertEqual((code, lines[-1]), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("skipped 1: no GPU", lines)

    def test_nothing_run_is_not_success(self):
        self.assertEqual(self.summarize(ctest_report())[0], 1)
        self.assertEqual(self.summarize(None)[0], 1)


class RunUnittest(unittest.TestCase):
    def run_file(self, body, *options):
        with tempfile.TemporaryDirectory() as folder:
            path, result = pathlib.Path(folder) / "sample_test.py", pathlib.Path(folder) / "sample.xml"
            path.write_text("import unittest\n" + body)
            command = [sys.executable, ROOT / "scripts/run_unittest.py", *options, path, result]
            code = subprocess.run(command, capture_output=True).returncode
            return code, result.read_text() if result.exists() else ""

    def test_failures_errors_and_skips_are_recorded(self):
        code, report = self.run_file("class T(unittest.TestCase):\n"
                                     "    def test_good(self): pass\n"
                                     "    def test_bad(self): self.fail('x')\n"
                                     "    def test_error(self): raise OSError\n"
                                     "    def test_skip(self): self.skipTest('no reason')\n"
                                     "    def test_sub(self):\n"
                                     "        with self.subTest(): self.fail()\n")
        self.assertEqual(code, 1)
        self.assertEqual(report.count("<testcase"), 5)
        self.assertEqual(report.count("<failure"), 3)
        self.assertEqual(report.count("<skipped"), 1)

    def test_a_file_without_cases_fails(self):
        self.assertEqual(self.run_file("")[0], 1)

    def test_a_file_that_cannot_be_read_fails(self):
        self.assertNotEqual(self.run_file("import nothing_of_that_name\n")[0], 0)

    def test_a_skip_on_request_counts_once(self):
        code, report = self.run_file("", "--skip", "sanitizer")
        self.assertEqual((code, report.count("<skipped")), (0, 1))


if __name__ == "__main__":
    unittest.main()
