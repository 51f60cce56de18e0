#!/usr/bin/env python3
"""What tools/demo and tools/check answer before they do anything. usage: scripts_test.py SOURCE_ROOT VERSION"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

VERSION = sys.argv.pop()
ROOT = sys.argv.pop()


def run(name, *words):
    return subprocess.run([os.path.join(ROOT, "tools", name), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=60)


def read(path):
    """What the file holds; nothing if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def default_signals():
    """In a child: one under nohup, or in the background of a script, would ignore them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


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

    def scored(self, bits_per_byte, **packed):
        """What tools/demo says of a score."""
        figures = {"bits_per_byte": bits_per_byte, "parameters": 1234, "compressors": {f"{name} -9": bits for name, bits in packed.items()}}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(figures, file)
            file.flush()
            done = run("demo_score.py", file.name)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_the_score_says_who_has_fewer_bits_and_that_the_measures_differ(self):
        lost, won = self.scored(2.1, bzip2=1.7, xz=2.5), self.scored(2.1, bzip2=2.2, xz=2.5)
        self.assertIn("\nbzip2 -9 has fewer bits: 1.700 against 2.100 of the model.", lost)
        self.assertIn("\nThe model has fewer bits: 2.100 against 2.200 of bzip2 -9.", won)
        for said in (lost, won):
            self.assertIn("do not measure the same", said)
            self.assertIn("1234 parameters", said)

    def test_the_score_names_compressors_that_are_not_installed(self):
        self.assertEqual(self.scored(2.1, gzip=None), "gzip -9  not installed\n")
        self.assertTrue(self.scored(2.1, gzip=2.37, xz=None).startswith("gzip -9  2.370 on the whole text\nxz -9    not installed\n"))
        self.assertEqual(self.scored(None, gzip=2.37).strip(), "")

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


MESON = """#!/bin/bash
# Stands for meson: sets up nothing, and runs no test or one that passes, as its environment says.
case "$1" in
  setup) [ "$STUB" != no-setup ] || exit 1; mkdir -p "$2/meson-logs"; touch "$2/build.ninja" ;;
  introspect) echo '[]' ;;
  test)
    while [ "$1" != --logbase ]; do [ "$1" != -C ] || folder=$2; shift; done
    case "$STUB" in
      no-test) exit 0 ;;
      wait) sleep 1000 & echo $! >"$WAITS"; wait ;;
      cut-off) printf '{"name": "one", "result": "OK"}\\n{"name": "tw' >"$folder/meson-logs/$2.json"; exit 1 ;;
    esac
    echo '{"name": "one", "result": "OK"}' >"$folder/meson-logs/$2.json" ;;
esac
"""


class Lanes(unittest.TestCase):
    """tools/check in a folder of its own, with a meson that does as it is told."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.bin = os.path.join(self.folder.name, "bin")
        shutil.copytree(os.path.join(ROOT, "tools"), os.path.join(self.folder.name, "tools"))
        os.mkdir(self.bin)
        for name, text in {"meson": MESON, "ninja": "#!/bin/sh\n"}.items():
            with open(os.path.join(self.bin, name), "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(file.name, 0o755)

    def start(self, stub, *words):
        self.waits = os.path.join(self.folder.name, "waits")
        environment = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}", STUB=stub, WAITS=self.waits)
        return subprocess.Popen([os.path.join(self.folder.name, "tools/check"), "--no-install", *words], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                preexec_fn=default_signals)

    def check(self, stub, *words):
        running = self.start(stub, *words)
        said = running.communicate(timeout=60)[0]
        return running.returncode, said.splitlines()[-1]

    def test_a_signal_ends_all_that_runs_and_leaves_the_count(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            running = self.start("wait", "--lane", "rules", "--lane", "gcc")
            while not read(self.waits).endswith("\n"):
                time.sleep(0.01)
            test = int(read(self.waits))
            os.remove(self.waits)
            running.send_signal(number)
            said = running.communicate(timeout=60)[0].splitlines()
            self.assertEqual((running.returncode, said[-1]), (128 + number, "0 passed, 1 failed, 0 skipped"))
            self.assertNotIn("== gcc", said)
            while read(f"/proc/{test}/stat").rpartition(")")[2][:2] not in ("", " Z"):  # gone, or nobody has waited for it yet
                time.sleep(0.01)

    def test_a_log_that_was_cut_off_is_a_failed_test(self):
        self.assertEqual(self.check("cut-off", "--lane", "rules"), (1, "1 passed, 1 failed, 0 skipped"))

    def test_builds_count_beside_tests(self):
        code, last = self.check("cut-off", "--lane", "rules", "--lane", "tsan")  # tsan names four tests that are not in its log
        self.assertEqual((code, last), (1, "2 passed, 6 failed, 0 skipped"))

    def test_whatever_ends_it_the_count_is_its_last_line(self):
        code, last = self.check("test", "--lane", "bare")  # no git repository here
        self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_test_that_passes_is_counted(self):
        self.assertEqual(self.check("test", "--lane", "rules"), (0, "1 passed, 0 failed, 0 skipped"))

    def test_a_lane_that_cannot_be_set_up_has_failed(self):
        for lane in ("rules", "gcc", "asan", "tsan"):
            code, last = self.check("no-setup", "--lane", lane)
            self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"), lane)

    def test_a_lane_that_runs_no_test_has_failed(self):
        self.assertEqual(self.check("no-test", "--lane", "rules"), (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_lane_misses_a_test_that_it_names(self):
        code, last = self.check("test", "--lane", "tsan")
        self.assertEqual((code, last), (1, "1 passed, 4 failed, 0 skipped"))

    def test_modes_exclude_each_other(self):
        code, last = self.check("test", "--all", "--changed")
        self.assertEqual((code, last), (2, "tools/check: --all and --changed exclude each other"))


class ChangedSuites(unittest.TestCase):
    def suites(self, *paths):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tools/changed_suites.py")], input="".join(f"{path}\0" for path in paths),
                              stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(done.stdout, "".join(f"{suite}\n" for suite in done.stdout.split()))
        return done.stdout.split()

    def test_a_folder_is_tested_and_the_layers_above_it_in_short(self):
        above = ["smoke-styles", "smoke-profiling", "smoke-tools", "smoke-integration"]
        self.assertEqual(self.suites("dtensor/ops/sort.cpp"), ["conformance", "dtensor", *above])
        self.assertEqual(self.suites("include/coshard/dtensor/tensor/tensor.h", "styles/nn/mlp.cpp"), ["conformance", "dtensor", "styles", *above[1:]])
        self.assertEqual(self.suites("tests/dtensor/tape/tape_test.cpp"), ["conformance", "dtensor", *above])
        self.assertEqual(self.suites("examples/train.cpp"), ["integration"])

    def test_each_layer_has_a_short_test(self):
        said = ""
        for folder, _, names in os.walk(os.path.join(ROOT, "tests")):
            for name in names:
                if name == "meson.build":
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        said += file.read()
        for suite in self.suites("meson.build"):
            self.assertIn(f"'{suite}'", said)

    def test_programs_outside_the_tree_run_where_what_they_build_with_changes(self):
        self.assertEqual(self.suites("CMakeLists.txt", "tests/consumers/test.py"), ["consumers"])

    def test_what_all_layers_share_runs_a_short_test_of_each(self):
        self.assertEqual(len(self.suites("tests/support/ranks.h")), 7)
        self.assertEqual(len(self.suites("meson.build")), 7)
        self.assertEqual(len(self.suites("packaging/meson.build")), 7)
        self.assertEqual(len(self.suites("include/coshard/coshard.h")), 7)

    def test_pages_run_their_own_tests(self):
        self.assertEqual(self.suites("README.md", "docs/run.md"), ["docs"])
        self.assertEqual(self.suites("LICENSE", ".gitignore"), [])

    def test_rules_that_take_long_run_where_they_change(self):
        self.assertEqual(self.suites("tests/style/headers_test.py"), ["style"])


class WhatClangAccepts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.write("captured.cpp", "struct P { int a, b; };\nint f(P p) { auto [a, b] = p; return [&] { return a + b; }(); }\n")
        self.write("fine.cpp", "int g() { return 1; }\n")
        self.write("all-unity0.cpp", f'#include<{self.folder}/fine.cpp>\n#include<{self.folder}/captured.cpp>\n')
        command = {"directory": self.folder, "command": "ccache c++ -std=c++20 -fcoroutines -Wno-restrict -Werror -MD -MF x.o.d -o x.o -c "}
        self.write("compile_commands.json", json.dumps(
            [{**command, "command": command["command"] + name, "file": name} for name in ("all-unity0.cpp", "fine.cpp")]))

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read_by_clang(self, *names):
        files = "".join(f"{os.path.join(self.folder, name)}\0" for name in names)
        return subprocess.run([sys.executable, os.path.join(ROOT, "tools/clang_accepts.py"), self.folder], input=files,
                              stdout=subprocess.PIPE, text=True, timeout=60, check=False)

    @unittest.skipUnless(shutil.which("clang++-14"), "clang 14 is not installed")
    def test_what_a_unity_file_includes_is_read(self):
        done = self.read_by_clang("captured.cpp")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("captured.cpp:2", done.stdout)

    @unittest.skipUnless(shutil.which("clang++-14"), "clang 14 is not installed")
    def test_other_units_are_not_read(self):
        self.write("all-unity0.cpp", "")
        done = self.read_by_clang("fine.cpp", "deleted.cpp", "page.md")
        self.assertEqual((done.returncode, done.stdout), (0, "clang reads 1 units: 0 with errors\n"))


if __name__ == "__main__":
    unittest.main()
