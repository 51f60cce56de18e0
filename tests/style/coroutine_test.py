"""Tests of tools/coroutine-check. usage: coroutine_test.py"""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # beside tools/coroutine-check
TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/coroutine-check")
loader = importlib.machinery.SourceFileLoader("coroutine_check", TOOL)
coroutine_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("coroutine_check", loader))
loader.exec_module(coroutine_check)

WRONG = {
    "co_await run([name] { use(name); });": "lambda",
    "co_await run([=](int i) mutable -> int { return i; });": "lambda",
    "co_await when_all([&, name]() { return f(name); });": "lambda",
    "int n = co_await f(std::function<void()>([this, name] {}));": "lambda",
    "co_await agg({.name = s});": "aggregate",
    "co_await agg(1, {.name = s});": "aggregate",
    "co_await agg(Agg{s, 1});": "Agg{",
    "co_await agg(my::Agg<int>{s});": "Agg{",
    "co_await agg(Agg{.name = s});": "Agg{",
    "co_await (ready ? f() : g());": "choice",
    "co_return ready ? co_await f() : 0;": "choice",
    "auto x = c ? (co_await f(T()), true) : false;": "choice",
    "f(c ? Text() : t, co_await g());": "choice beside",
    "if (co_await f(c ? Text() : t)) g();": "choice",
    'co_await f({"a", "b"});': "initializer_list",
    "co_await f(\n    1,\n    [name] { g(); });": "lambda",
    'co_await f("; not the end", [name] {});': "lambda",
    "co_await run([x = v[0]] { return x; });": "lambda",
    "co_await run([name](std::function<void(int)> g) { g(1); });": "lambda",
    "int n = combine([name] { return name; }, co_await g());": "lambda",
    "co_await f(Agg{});": "Agg{",
    "int n = combine(Agg{s, 1}, co_await g());": "Agg{",
    "Agg agg{co_await g(), 1};": "Agg made",
    "Agg agg = {.name = co_await g()};": "Agg made",
    "agg = Agg{s, co_await g()};": "Agg made",
    "co_await f('\"', c ? 'a' : 'b');": "choice",
    "if (co_await done()) co_return;": "condition",
    "if (x) { while (!co_await done()) g(); }": "condition",
    "for (; co_await done();) g();": "condition",
    "do g(); while (co_await done());": "condition",
    "switch (co_await g()) { case 1: h(); }": "condition",
}
RIGHT = [
    "auto t = f(Agg{s, 1}); co_await std::move(t);",
    "co_await f(cs::ones(dev, {2, 4}));",
    "co_await elements(permute(x, {1, 0}));",
    "co_await f(cs::Shape{2, n}, Agg());",
    "co_await f('?', '\\'', 1'000'000);",
    "co_await f([](Text t) -> Task<void> { co_await g(t); }(t));",
    "co_await run([&] { return Agg{name, 1}; });",
    "std::pair<Text, int> p{co_await f(), 1};",
    "std::array<int, 2> a{co_await f(), 1};",
    "if (c) g(Agg{s, 1}); co_await f();",
    "if (c) { g(Agg{s, 1}); } co_await f();",
    "const bool is_done = co_await done(); if (is_done) co_return;",
    "int n = 0; while (co_await more(n)) ++n;",
    "if (Text t = co_await f(); t.empty()) co_return;",
    "for (int i = 0; i < co_await f(); ++i) g();",
    "try { g(); } catch (const Error& e) { } if (co_await done()) co_return;",
    "run([] { g(); }); if (co_await done()) co_return;",
    "if (c) co_await f(); else g();",
    "co_await f(a && b || c);",
    "co_await parallelize_module(m, mesh, cs::ColwiseParallel{.input_layouts = cs::Shard(0)});",
    "co_await x.redistribute({Shard(0), Replicate()});",
    "co_await f(Sizes{1, 2.5, 3});",
    "co_await run([&] { use(name); });",
    "co_await run([&name, this] { use(name); });",
    "co_await table[index];",
    "if (c ? a : b) co_await f();",
    "Awaiter operator co_await() const { return Awaiter{state_}; }",
    "auto f = [name]() -> Task<void> { co_await g(); };",
    "if (ready) { co_await f(); } else { x = y ? 1 : 2; }",
    "x = y ? 1 : 2; co_await f(x);",
    "co_await f(x);  // c ? a : b, [name] {}",
]


class Forms(unittest.TestCase):
    def test_finds_every_form_that_gcc_12_miscompiles(self):
        for text, word in WRONG.items():
            found = coroutine_check.problems_in("Task<void> f() {\n" + text + "\n}\n")
            self.assertEqual([line for line, _, _ in found], [2], text)
            self.assertIn(word, found[0][1], text)

    def test_passes_over_what_is_right(self):
        for text in RIGHT:
            self.assertEqual(coroutine_check.problems_in("Task<void> f() {\n" + text + "\n}\n"), [], text)

    def test_the_command_names_file_and_line_and_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            right, wrong = os.path.join(folder, "right.cpp"), os.path.join(folder, "wrong.cpp")
            for path, lines in ((right, RIGHT), (wrong, WRONG)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write("".join(f"Task<void> f() {{ {line} }}\n" for line in lines))
            passed = subprocess.run([sys.executable, TOOL, right], capture_output=True, text=True)
            self.assertEqual((passed.returncode, passed.stdout), (0, ""))
            failed = subprocess.run([sys.executable, TOOL, right, wrong], capture_output=True, text=True)
            self.assertEqual(failed.returncode, 1)
            self.assertEqual(failed.stdout.count("\n"), len(WRONG))
            self.assertIn("wrong.cpp:1: a lambda", failed.stdout)
            missing = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True)
            self.assertEqual((missing.returncode, missing.stderr), (2, f"coroutine-check: {folder}: Is a directory\n"))


if __name__ == "__main__":
    unittest.main()
