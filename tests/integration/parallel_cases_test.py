#!/usr/bin/env python3
"""Tests of parallel_cases.py. usage: parallel_cases_test.py"""
import os
import signal
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
# In a case: says(name) makes a file; hears(name) waits for one.
HEAD = """
import os, signal, sys, tempfile, time, unittest
sys.path.insert(0, {folder!r})
import parallel_cases
def says(name): open({shared!r} + "/" + name, "w").close()
def hears(name):
    while not os.path.exists({shared!r} + "/" + name): time.sleep(0.01)
class Cases(unittest.TestCase):
"""
TAIL = "\nunittest.main(testRunner=parallel_cases.Runner({at_once}))\n"


class ParallelCases(unittest.TestCase):
    def setUp(self):
        self.shared = tempfile.TemporaryDirectory()
        self.addCleanup(self.shared.cleanup)

    def start(self, *cases, at_once=2):
        lines = "".join(f"    {line}\n" for case in cases for line in case.split("\n"))
        program = HEAD.format(folder=FOLDER, shared=self.shared.name) + lines + TAIL.format(at_once=at_once)
        return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def run_cases(self, *cases, at_once=2):
        with self.start(*cases, at_once=at_once) as program:
            out, _ = program.communicate(timeout=60)
            return program.returncode, out

    def test_cases_run_at_the_same_time(self):
        code, out = self.run_cases('def test_a(self): says("a"); hears("b"); print("a is told")', 'def test_b(self): hears("a"); says("b")')
        self.assertEqual(code, 0, out)
        self.assertIn("a is told\n", out)
        self.assertIn("2 cases in ", out)

    def test_no_more_than_so_many_run_at_a_time_and_a_long_one_starts_first(self):
        first = '@parallel_cases.starts_first\ndef test_c(self): says("c")'
        code, out = self.run_cases('def test_a(self): hears("c"); says("a")', 'def test_b(self): hears("a")', first, at_once=1)
        self.assertEqual(code, 0, out)

    def test_each_has_a_tmpdir_of_its_own(self):
        case = 'def test_{0}(self): self.assertEqual(os.environ["TMPDIR"], tempfile.gettempdir()); print("in", tempfile.gettempdir())'
        code, out = self.run_cases(case.format("a"), case.format("b"))
        self.assertEqual(code, 0, out)
        folders = {line for line in out.split("\n") if line.startswith("in ")}
        self.assertEqual(len(folders), 2)
        self.assertFalse(any(os.path.exists(line.removeprefix("in ")) for line in folders))

    def test_a_case_that_fails_exits_or_is_killed_fails_the_program(self):
        for body, told in (("self.assertEqual(1, 2)", "1 != 2"), ("sys.exit(0)", "SystemExit"), ("os.kill(os.getpid(), signal.SIGKILL)", "")):
            code, out = self.run_cases("def test_a(self): pass", f"def test_b(self): {body}")
            self.assertEqual(code, 1, out)
            self.assertIn(told, out)
            self.assertRegex(out, r"1 failed: test_b ")

    def test_a_case_that_is_skipped_says_why_and_is_no_failure(self):
        code, out = self.run_cases("def test_a(self): pass", 'def test_b(self): self.skipTest("no netem")')
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"skip .*test_b\nno netem|skip .*test_b\n.*no netem")

    def test_what_a_case_leaves_in_its_tmpdir_is_no_failure(self):
        code, out = self.run_cases('def test_a(self): os.makedirs(os.path.join(tempfile.gettempdir(), "left/there"))')
        self.assertEqual(code, 0, out)

    def test_what_the_cases_have_made_is_removed_when_the_program_is_ended(self):
        for end in (os.kill, os.killpg):
            case = 'def test_{0}(self): self.addCleanup(says, "removed {0}"); says("{0}"); time.sleep(600)'
            with self.start(*(case.format(name) for name in "abc")) as program:
                while len(os.listdir(self.shared.name)) < 2:
                    self.assertIsNone(program.poll())
                end(program.pid, signal.SIGTERM)
                program.communicate(timeout=60)
                self.assertEqual(program.returncode, 1)
            self.assertEqual(sorted(os.listdir(self.shared.name)), ["a", "b", "removed a", "removed b"])
            for name in os.listdir(self.shared.name):
                os.remove(os.path.join(self.shared.name, name))


if __name__ == "__main__":
    unittest.main()
