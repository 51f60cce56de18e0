"""Tests of tools/mutate: what it changes in a line, and a whole run on a tree of one library. usage: mutate_test.py"""
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # beside tools/mutate
TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/mutate")
loader = importlib.machinery.SourceFileLoader("mutate", TOOL)
mutate = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
loader.exec_module(mutate)

TREE = {
    "meson.build": """project('toy', 'cpp')
clamp = static_library('clamp', 'runtime/clamp.cpp')
test('clamp', executable('clamp_test', 'tests/clamp_test.cpp', link_with: clamp))
test('never run', find_program('false'), suite: 'style')
""",
    "runtime/clamp.cpp": """// Nothing in a comment is changed: x < 3.
int clamp(int x) {
  if (x < 30) return 30;
  return x;
}
int untested(int x) {
  return x + 70;
}
""",
    "tests/clamp_test.cpp": """int clamp(int x);
int main() { return clamp(29) == 30 && clamp(30) == 30 && clamp(31) == 31 && clamp(32) == 32 ? 0 : 1; }
""",
    "tools/mutate.equivalents": "# the bound itself is what is given back\nruntime/clamp.cpp: if (x < 30) return 30; -> if (x <= 30) return 30;\n"
                                "runtime/clamp.cpp: if (x < 30) return 30; -> if (x < 31) return 30;\n",
}


class Changes(unittest.TestCase):
    def test_each_line_is_changed_in_all_ways_and_one_at_a_time(self):
        for line, wanted in {
            "  if (a < b) {": ["  if (a <= b) {", "  if (!(a < b)) {"],
            "  x += y * 2;": ["  x -= y * 2;", "  x += y / 2;", "  x += y * 3;", "  ;"],
            "  return true;": ["  return false;", "  return {};"],
            "  ++count_;": ["  --count_;", "  ;"],
            "  lock.unlock();": ["  ;"],
            "  if (done) return;": ["  if (!(done)) return;", "  ;"],
        }.items():
            self.assertEqual(sorted(mutate.changes_of(line)), sorted(wanted), line)

    def test_comments_texts_types_and_declarations_stay(self):
        for line in ["// a < b", '#include "a < b"', '  text = "a < 1";  // b + 1'.replace("text = ", "say "), "std::vector<int> x;", "template <int N = 1>",
                     "  const T& y = x;", "using A = B<1>;", "", "}"]:
            self.assertEqual(mutate.changes_of(line), [], line)


class Run(unittest.TestCase):
    def test_a_toy_is_mutated_in_a_copy_and_only_what_no_test_sees_survives(self):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in TREE.items():
                os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
                with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
                    file.write(text)
            shutil.copy(TOOL, os.path.join(folder, "tools/mutate"))
            subprocess.run(["git", "init", "-q", folder], check=True)  # which ignores nothing, not the copy either
            command = [sys.executable, os.path.join(folder, "tools/mutate"), "--seed", "3", "--count", "6", "--jobs", "1"]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            ends = [line for line in done.stdout.split("\n") if line.startswith(("noticed", "survived"))]
            self.assertEqual(len(set(ends)), 6, done.stdout)
            for line in ends:
                self.assertEqual(line.split()[0], "survived" if "clamp.cpp:7" in line else "noticed", done.stdout)
                self.assertNotIn("<=", line)  # listed
            self.assertEqual({line.split()[0] for line in ends}, {"noticed", "survived"})
            self.assertIn("of 6", done.stdout)
            for path, text in TREE.items():
                for where in (folder, os.path.join(folder, "build-mutate")):
                    with open(os.path.join(where, path), encoding="utf-8") as file:
                        self.assertEqual(file.read(), text, path)


if __name__ == "__main__":
    unittest.main()
