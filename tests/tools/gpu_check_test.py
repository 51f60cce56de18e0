#!/usr/bin/env python3
"""tools/gpu-check from its tests to its JSON, on the fake driver. usage: gpu_check_test.py SOURCE_ROOT BUILD_ROOT COSHARD"""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
COSHARD = os.path.abspath(sys.argv.pop())
BUILD = sys.argv.pop()
ROOT = sys.argv.pop()
PEER = """import json
print(json.dumps({"matmul": 1.0, "block_eager": 1.0, "block_compiled": 2.0}))
"""


def gpu_check():
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("gpu_check", os.path.join(ROOT, "tools", "gpu-check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = os.path.join(self.folder.name, "out.json")
        self.peer = os.path.join(self.folder.name, "peer.py")
        with open(self.peer, "w", encoding="utf-8") as file:
            file.write(PEER)

    def tearDown(self):
        self.folder.cleanup()

    def check(self, *words, **environment):
        command = [os.path.join(ROOT, "tools", "gpu-check"), "--out", self.out, *words]
        return subprocess.run(command, env=dict(os.environ, **environment), stdout=subprocess.PIPE, text=True)

    def on_fake(self, *words, **environment):
        return self.check("--build", BUILD, "--coshard", COSHARD, "--suite", "fake-cuda", "--only", "doctor on fake",
                          "--tiny", "--peer", self.peer, *words, **environment)

    def report(self):
        with open(self.out, encoding="utf-8") as file:
            return json.load(file)

    def test_writes_tests_figures_versions_and_device(self):
        done = self.on_fake()
        report = self.report()
        failures = report["bench"]["failures"]
        self.assertEqual((done.returncode, report["ok"]), (1, False) if failures else (0, True), done.stdout)
        tests = report["tests"]["doctor on fake cuda"]
        self.assertEqual(tests["result"], "passed")
        self.assertEqual(tests["cases"]["DoctorOnFake.NoDriver"], "passed")
        self.assertTrue(any("compute capability 9.0" in line for line in report["doctor"]))
        self.assertTrue(report["versions"]["compiler"])
        self.assertEqual(failures, [])
        results = {r["name"]: r for r in report["bench"]["results"]}
        for name in ("host_add", "host_redistribute", "matmul", "copy", "rms_norm_of_copy", "cross_entropy_of_copy",
                     "adamw_of_copy", "attention_backward", "block", "all_reduce_4KiB", "matmul_over_pytorch",
                     "block_over_eager", "block_over_compiled"):
            self.assertGreater(results[name]["value"], 0, name)
        self.assertAlmostEqual(results["block_over_compiled"]["value"] / results["block_over_eager"]["value"], 2, places=3)

    def test_a_device_that_is_missing_fails(self):
        done = self.on_fake("--no-bench", COSHARD_TEST_DEVICES="0")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("this machine has no CUDA device", done.stdout)

    def test_a_suite_without_tests_fails(self):
        self.assertEqual(self.on_fake("--no-bench", "--only", "no such test").returncode, 1)

    def test_headers_that_it_is_given_are_found_without_pkg_config(self):
        for name in ("boost", "fmt", "CLI", "range"):
            os.makedirs(os.path.join(self.folder.name, "given", "usr", "include", name))
        given = os.path.join(self.folder.name, "given")
        headers = gpu_check().Headers(given, os.path.join(self.folder.name, "build"))
        with open(headers.native_file(), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertIn(f"boost_root = '{given}/usr'", lines)
        program = next(line.split("'")[1] for line in lines if line.startswith("pkg-config"))

        def answer(*words):
            return subprocess.run([program, *words], stdout=subprocess.PIPE, text=True)
        self.assertEqual(answer("--cflags", "fmt").stdout, f"-I{given}/usr/include -DFMT_HEADER_ONLY\n")
        for name in ("CLI11", "range-v3"):
            self.assertEqual(answer("--modversion", name).returncode, 0)
        self.assertEqual(answer("--modversion", "nlohmann_json").returncode, 1)

    def test_a_build_needs_no_more_than_the_headers_it_is_given(self):
        given = os.path.join(self.folder.name, "given")
        os.makedirs(given)
        os.symlink("/usr", os.path.join(given, "usr"))
        build = os.path.join(self.folder.name, "build")
        command = ["meson", "setup", build, ROOT, "--native-file", gpu_check().Headers(given, build).native_file(),
                   "--wrap-mode=nofallback", "-Dcuda=disabled", "-Dmpi=disabled", "-Dtests=enabled"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:])
        for name in ("fmt", "libcrypto", "cli11", "nlohmann_json", "GTest"):
            self.assertRegex(done.stdout, rf"Run-time dependency {name} found: YES (99\.0|3\.0\.0|1\.12\.1)")

    def test_headers_that_are_not_there_are_named(self):
        with self.assertRaisesRegex(SystemExit, "--headers /nowhere: there is no usr/include"):
            gpu_check().Headers("/nowhere", self.folder.name)

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "this machine has a GPU")
    def test_without_a_gpu_it_is_skipped(self):
        done = self.check()
        self.assertEqual((done.returncode, done.stdout), (77, "no CUDA device\n"))
        self.assertFalse(os.path.exists(self.out))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
