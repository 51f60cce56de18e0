"""Tests of the pages themselves. usage: pages_test.py SOURCE_ROOT"""
import glob
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # beside the scripts that are loaded

from site_check import chromium, problems_of, wide_blocks_of
from snippets import blocks_of, source_of

ROOT = sys.argv.pop(1)
DOCS = os.path.join(ROOT, "docs")
README = os.path.join(ROOT, "README.md")
PAGES = sorted(glob.glob(os.path.join(ROOT, "*.md"))) + sorted(glob.glob(os.path.join(DOCS, "*.md")))
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
MAY_INCLUDE = {f"<coshard/{name}.h>" for name in ("coshard", "asio", "op", "device", "debug", "simulate")}


def load(path):
    """A script of the tree as a module."""
    loader = importlib.machinery.SourceFileLoader("script", os.path.join(ROOT, path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("script", loader))
    loader.exec_module(module)
    return module


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def without_code(text):
    return re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", text, flags=re.S | re.M)


def anchors_of(text):
    """As GitHub and MyST make them from headings."""
    headings = re.findall(r"^#{1,3} (.*)$", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(path, text, text_of):
    """Links of a page to files that are not there, or to headings that those lack."""
    dead = []
    for target in LINK.findall(without_code(text)):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if not os.path.exists(file):
            dead.append(target)
        elif anchor and anchor not in anchors_of(text if file == path else text_of(file)):
            dead.append(target)
    return dead


class Pages(unittest.TestCase):
    def test_no_link_is_dead(self):
        for page in PAGES:
            self.assertEqual(dead_links(page, read(page), read), [], page)

    def test_a_dead_link_is_found(self):
        text = "# A b\n[file](no.md) [heading](#a-c) [fine](#a-b) `[code](no.md)`\n"
        self.assertEqual(dead_links(README, text, read), ["no.md", "#a-c"])

    def test_no_link_is_dead_where_the_site_gathers_its_pages(self):
        with tempfile.TemporaryDirectory() as folder:
            gathered = os.path.join(folder, "pages")
            load("docs/gather_pages.py").gather(ROOT, gathered)
            names = sorted(os.path.basename(page) for page in PAGES)
            self.assertEqual(sorted(name for name in os.listdir(gathered) if name.endswith(".md")), names)
            for name in names:
                page = os.path.join(gathered, name)
                self.assertEqual(dead_links(page, read(page), read), [], name)

    def test_every_page_is_in_the_navigation_and_in_the_build(self):
        names = {os.path.basename(page).removesuffix(".md") for page in PAGES}
        tree = re.search(r"```\{toctree\}(.*?)```", read(os.path.join(DOCS, "index.md")), re.S).group(1)
        listed = re.findall(r"^(?:\w+ <)?(\w+)>?$", tree, re.M)
        self.assertEqual(sorted(listed), sorted(names - {"index"}))
        build = read(os.path.join(ROOT, "tests/docs/meson.build"))
        self.assertEqual({name for name in names if f"'{name}'" not in build and os.path.exists(os.path.join(DOCS, name + ".md"))}, set())

    def test_llms_txt_has_each_page_but_the_index(self):
        text = read(os.path.join(DOCS, "llms.txt"))
        self.assertRegex(text, r"\A# coshard\n\n> ")
        entries = re.findall(r"^- \[[^\]]+\]\((\S+)\): \S", text, re.M)
        self.assertEqual(sorted(entries), sorted({os.path.basename(page) for page in PAGES} - {"index.md"}))
        self.assertEqual(text.count("]("), len(entries))

    def test_every_drawing_is_shown_and_stands_alone(self):
        shown = "".join(read(page) for page in PAGES)
        for drawing in glob.glob(os.path.join(DOCS, "drawings", "*.svg")):
            self.assertIn("drawings/" + os.path.basename(drawing), shown)
            self.assertNotRegex(read(drawing).replace("http://www.w3.org/2000/svg", ""), r"https?://|<script|@import")

    def test_readme_is_one_screen_and_shows_the_quickstart(self):
        readme = read(README)
        self.assertLessEqual(readme.count("\n"), 100)
        self.assertIn("```cpp\n" + read(os.path.join(ROOT, "examples/quickstart.cpp")) + "```\n", readme)
        for command in ("tools/demo ", "tools/check "):
            self.assertLess(readme.index(command), readme.index("```cpp"))

    def test_blocks_use_public_headers_alone_and_nothing_that_gcc_12_miscompiles(self):
        check = load("tools/coroutine-check")
        for page in PAGES:
            for block in blocks_of(read(page)):
                included = re.findall(r"^#include (.*)$", block.given + block.code, re.M)
                ours = {name for name in included if name.startswith('"') or name.startswith("<coshard/")}
                self.assertLessEqual(ours, MAY_INCLUDE, page)
                self.assertEqual(list(check.problems_in(block.code)), [], f"{page}:{block.line}")

    def test_public_headers_are_those_of_the_reference(self):
        headers = {f"<coshard/{os.path.basename(path)}>" for path in glob.glob(os.path.join(ROOT, "include/coshard/*.h"))}
        listed = set(re.findall(r"^\| `(<coshard/\w+\.h>)`", read(os.path.join(DOCS, "api.md")), re.M))
        self.assertEqual(listed, MAY_INCLUDE)
        self.assertLessEqual(listed, headers)


class Changelog(unittest.TestCase):
    def test_a_change_is_one_line_under_added_changed_or_fixed(self):
        begun = False
        for line in read(os.path.join(ROOT, "CHANGELOG.md")).split("\n"):
            begun = begun or line.startswith("## ")
            if begun and line:
                self.assertRegex(line, r"^(## \d+\.\d+\.\d+( \(unreleased\))?|### (Added|Changed|Fixed)|- .{1,138})$")


class Snippets(unittest.TestCase):
    def source(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a-page.md")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return source_of(path)

    def test_a_fragment_is_the_body_of_a_program_between_what_is_given_and_what_must_hold(self):
        text = self.source("<!-- given on 4 ranks\nint a = 1;\n-->\n```cpp\n#include <coshard/op.h>\n++a;\n```\n<!-- then\ncheck(a);\n-->\n")
        body = "\n".join(line for line in text.split("\n") if line and not line.startswith("#line"))
        self.assertIn("line_5(cs::World& world) {\nint a = 1;\n++a;\ncheck(a);\n  co_return;", body)
        self.assertIn("TEST(PageAPage, Line5)", text)
        self.assertIn(".ranks = 4,", text)
        self.assertLess(text.index("<coshard/op.h>"), text.index("namespace"))

    def test_definitions_stand_as_they_are_and_programs_among_them_run(self):
        text = self.source("```cpp\ncs::Task<void> go(cs::World& world) {\n  co_return;\n}\nvoid plain() {\n}\n```\n")
        self.assertIn("TEST(PageAPage, go)", text)
        self.assertIn("TEST(PageAPage, plain) { plain(); }", text)

    def test_a_block_may_be_hidden(self):
        self.assertIn("TEST(PageAPage, Line2)", self.source("<!-- run\ncheck();\n-->\n"))

    def test_what_is_not_run_is_compiled(self):
        text = self.source("<!-- given, not run -->\n```cpp\nf();\n```\n")
        self.assertIn("inline cs::Task<void> line_3", text)
        self.assertNotIn("TEST(", text)


class Site(unittest.TestCase):
    def problems(self, page, style=""):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("index.html", page), ("style.css", style)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            return problems_of(folder)

    def test_a_link_for_readers_may_lead_anywhere(self):
        self.assertEqual(self.problems('<a href="https://a.b">x</a><p id="c"><a href="#c">y</a><img src="style.css">'), [])

    def test_dead_links_and_what_is_loaded_from_elsewhere_are_found(self):
        for page in ('<a href="no.html">', '<a href="#no">', '<img src="no.png">', '<script src="https://a.b/c.js"></script>',
                     '<link rel="stylesheet" href="//a.b/c.css">', '<p style="background: url(http://a.b)">'):
            self.assertEqual(len(self.problems(page)), 1, page)
        for style in ('@import "https://a.b/c.css";', "x { src: url('//a.b/c.woff') }"):
            self.assertEqual(len(self.problems("<p>", style)), 1, style)


    @unittest.skipUnless(chromium.installed(), "chromium is not installed")
    def test_code_that_is_wider_than_its_column_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "index.html"), "w", encoding="utf-8") as file:
                for width in (10, 1000):
                    file.write(f"<pre style='overflow: auto'>line\n{'x' * width}</pre>")
            self.assertEqual(wide_blocks_of(folder), ["index.html: wider than its column: " + "x" * 1000])


class Reference(unittest.TestCase):
    def test_comments_of_headers_become_documentation(self):
        header = "#pragma once\n// What it is.\n\n// Of @x.\n//   Moves:  nothing,\n//           ever.\n//   f(x)\nint f();  // twice\n"
        with tempfile.NamedTemporaryFile("w", suffix=".h") as file:
            file.write(header)
            file.flush()
            run = [sys.executable, os.path.join(DOCS, "doxygen_filter.py"), file.name]
            text = subprocess.run(run, capture_output=True, text=True, check=True).stdout
        self.assertIn("/// \\file", text)
        self.assertIn("/// What it is.", text)
        self.assertIn("/// Of \\@x.\n/// - \\b Moves: nothing,\n", text)
        self.assertIn("int f();  ///< twice", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
