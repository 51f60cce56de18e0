"""Tests of tools/mutate: what it changes in a line, and a whole run on a tree of one library. usage: mutate_test.py"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # beside tools/mutate
TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/mutate")
sys.path.insert(0, os.path.dirname(TOOL))
import mutations

TREE = {
    "meson.build": """project('toy', 'cpp')
clamp = static_library('clamp', 'runtime/clamp.cpp')
test('clamp', executable('clamp_test', 'tests/clamp_test.cpp', link_with: clamp))
test('never run', find_program('false'), suite: 'style')
""",
    "runtime/clamp.cpp": """// Nothing in a comment is changed: x < 3.
enum Kind { nothing = 0 };  // a constant: what does not compile is drawn again
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
            self.assertEqual(sorted(mutations.changes_of(line)), sorted(wanted), line)

    def test_comments_texts_types_and_declarations_stay(self):
        for line in ["// a < b", '#include "a < b"', '  text = "a < 1";  // b + 1'.replace("text = ", "say "), "std::vector<int> x;", "template <int N = 1>",
                     "  const T& y = x;", "using A = B<1>;", "", "}"]:
            self.assertEqual(mutations.changes_of(line), [], line)


def mutation(text, number, after):
    line = text.split("\n")[number - 1]
    site, = [site for site in mutations.sites_of(line, mutations.blanked(line)) if site[0] == after]
    return mutations.Mutation("a.cpp", number, line, *site)


class Switches(unittest.TestCase):
    def test_a_mutation_is_chosen_in_the_whole_expression_or_statement(self):
        chosen = "coshard_mutant(7)"
        for line, after, wanted in [
            ("  f(x, a + b * c, y);", "  f(x, a - b * c, y);", f"  f(x, ({chosen} ? (a - b * c) : (a + b * c)), y);"),
            ("  const double d = double(a) / 2;", "  const double d = double(a) * 2;", f"  const double d = ({chosen} ? (double(a) * 2) : (double(a) / 2));"),
            ("  if (a) x += b ? c : d;", "  if (a) x -= b ? c : d;", f"  if (a)({chosen} ? ( x -= b ? c : d) : ( x += b ? c : d));"),
            ("  return a < b::c ? 1 : 2;", "  return a <= b::c ? 1 : 2;", f"  return ({chosen} ? (a <= b::c ) : (a < b::c ))? 1 : 2;"),
            ('  say("is " + name);', '  say("is " - name);', f'  say(({chosen} ? ("is " - name) : ("is " + name)));'),
            ("  for (int i = 0; i < n; ++i) {", "  for (int i = 0; i < n; --i) {", f"  for (int i = 0; i < n; ({chosen} ? (--i) : (++i))) {{"),
            ("  if (x) {", "  if (!(x)) {", f"  if (({chosen} != bool(x))) {{"),
            ("  g(true);", "  g(false);", f"  g(({chosen} ? false : true));"),
            ("  return x;", "  return {};", f"  {{ if ({chosen}) return {{}}; return x; }}"),
            ("  g(x);", "  ;", f"  {{ if (!{chosen}) {{ g(x); }} }}"),
        ]:
            line, wanted = f"{{\n{line}", f"{{\n{wanted}"
            self.assertEqual(mutations.woven(line, {7: mutation(line, 2, after)}), wanted)

    def test_lines_stay_where_they_are_and_switches_within_others_are_inside(self):
        text = "int f() {\n  return a +  // a comment\n         b;\n}"
        one, two = mutation(text, 2, "  return a -  // a comment"), mutation("int f() {\n  return a + 1;\n}", 2, "  return {};")
        self.assertEqual(mutations.woven(text, {1: one}),
                         "int f() {\n  return (coshard_mutant(1) ? (a -" + " " * 24 + "b) : (a +  // a comment\n         b));\n}")
        three = mutation("int f() {\n  return a + 1;\n}", 2, "  return a + 2;")
        self.assertEqual(mutations.woven("int f() {\n  return a + 1;\n}", {2: two, 3: three}),
                         "int f() {\n  { if (coshard_mutant(2)) return {}; return a + (coshard_mutant(3) ? 2 : 1); }\n}")

    def test_what_awaits_and_pieces_of_statements_are_not_changed_at_run_time(self):
        for text, number, after in [("{\n  co_await f(a + b);", 2, "  co_await f(a - b);"), ("  f(a,\n    g(x));", 2, "    ;")]:
            self.assertIsNone(mutations.span_of(text, mutation(text, number, after)))


class Run(unittest.TestCase):
    def test_a_toy_is_mutated_in_a_copy_and_only_what_no_test_sees_survives(self):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in TREE.items():
                os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
                with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
                    file.write(text)
            for name in ("mutate", "mutate.h", "mutations.py"):
                shutil.copy(os.path.join(os.path.dirname(TOOL), name), os.path.join(folder, "tools", name))
            subprocess.run(["git", "init", "-q", folder], check=True)  # which ignores nothing, not the copy either
            command = [sys.executable, os.path.join(folder, "tools/mutate"), "--seed", "3", "--count", "6", "--jobs", "1"]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            ends = [line for line in done.stdout.split("\n") if line.startswith(("noticed", "survived"))]
            self.assertEqual(len(set(ends)), 6, done.stdout)
            for line in ends:
                self.assertEqual(line.split()[0], "survived" if "clamp.cpp:8" in line else "noticed", done.stdout)
                self.assertEqual("no test reaches it" in line, "clamp.cpp:8" in line, done.stdout)
                self.assertNotIn("<=", line)  # listed
                self.assertNotIn("Kind", line)
            self.assertEqual({line.split()[0] for line in ends}, {"noticed", "survived"})
            self.assertIn("of 6", done.stdout)
            for path, text in TREE.items():
                for where in (folder, os.path.join(folder, "build-mutate")):
                    with open(os.path.join(where, path), encoding="utf-8") as file:
                        self.assertEqual(file.read(), text, path)


if __name__ == "__main__":
    unittest.main()
