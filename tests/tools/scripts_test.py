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

    def test_check_names_a_lane_that_it_lacks(self):
        done = run("check", "--lane", "gpu")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "tools/check: there is no lane 'gpu'; there are rules docs gcc asan tsan cuda bare\n")

    def test_check_names_a_commit_that_it_lacks(self):
        done = run("check", "--changed", "no-such-branch")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "tools/check: --changed: there is no commit 'no-such-branch'\n")


class ChangedSuites(unittest.TestCase):
    def suites(self, *paths):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tools/changed_suites.py")], input="\n".join(paths),
                              stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(done.stdout, "".join(f"{suite}\n" for suite in done.stdout.split()))
        return done.stdout.split()

    def test_a_folder_is_tested_and_the_layers_above_it_in_short(self):
        above = ["smoke-styles", "smoke-profiling", "smoke-tools", "smoke-integration"]
        self.assertEqual(self.suites("dtensor/ops/sort.cpp"), ["dtensor", *above])
        self.assertEqual(self.suites("include/coshard/dtensor/tensor.h", "styles/nn/mlp.cpp"), ["dtensor", "styles", *above[1:]])
        self.assertEqual(self.suites("tests/dtensor/tape_test.cpp"), ["dtensor", *above])
        self.assertEqual(self.suites("examples/train/text.cpp"), ["integration"])

    def test_what_all_layers_share_runs_a_short_test_of_each(self):
        self.assertEqual(len(self.suites("tests/support/ranks.h")), 7)
        self.assertEqual(len(self.suites("meson.build")), 7)
        self.assertEqual(len(self.suites("include/coshard/coshard.h")), 7)

    def test_pages_run_their_own_tests(self):
        self.assertEqual(self.suites("README.md", "docs/run.md"), ["docs"])
        self.assertEqual(self.suites("LICENSE", ".gitignore"), [])


if __name__ == "__main__":
    unittest.main()
