#!/usr/bin/env python3
"""What tools/demo and tools/check answer before they do anything. usage: scripts_test.py SOURCE_ROOT VERSION"""
import os
import subprocess
import sys
import unittest

VERSION = sys.argv.pop()
ROOT = sys.argv.pop()


def run(name, *words):
    return subprocess.run([os.path.join(ROOT, "tools", name), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=60)


class Scripts(unittest.TestCase):
    def test_both_say_their_version(self):
        for name in ("demo", "check"):
            done = run(name, "--version")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"coshard {VERSION}\n", ""))

    def test_both_have_help(self):
        for name in ("demo", "check"):
            done = run(name, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertTrue(done.stdout.startswith(f"usage: tools/{name} "), done.stdout)

    def test_check_names_an_option_that_it_lacks(self):
        done = run("check", "--fats")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "tools/check: there is no option '--fats'; --help lists those that there are\n")


if __name__ == "__main__":
    unittest.main()
