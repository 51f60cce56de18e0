"""Tests of the pages themselves. usage: pages_test.py SOURCE_ROOT"""
import glob
import importlib.machinery
import importlib.util
import os
import re
import sys
import unittest

from snippets import blocks_of

ROOT = sys.argv.pop(1)
DOCS = os.path.join(ROOT, "docs")
PAGES = [os.path.join(ROOT, "README.md")] + sorted(glob.glob(os.path.join(DOCS, "*.md")))
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
        self.assertEqual(dead_links(PAGES[0], text, read), ["no.md", "#a-c"])

    def test_every_page_is_in_the_navigation_and_in_the_build(self):
        names = {os.path.basename(page).removesuffix(".md") for page in PAGES[1:]}
        tree = re.search(r"```\{toctree\}(.*?)```", read(os.path.join(DOCS, "index.md")), re.S).group(1)
        listed = [line for line in tree.split("\n") if re.fullmatch(r"\w+", line)]
        self.assertEqual(sorted(listed), sorted(names - {"index"}))
        build = read(os.path.join(ROOT, "tests/docs/meson.build"))
        self.assertEqual({name for name in names if f"'{name}'" not in build}, set())

    def test_every_drawing_is_shown_and_stands_alone(self):
        shown = "".join(read(page) for page in PAGES)
        for drawing in glob.glob(os.path.join(DOCS, "drawings", "*.svg")):
            self.assertIn("drawings/" + os.path.basename(drawing), shown)
            self.assertNotRegex(read(drawing).replace("http://www.w3.org/2000/svg", ""), r"https?://|<script|@import")

    def test_readme_is_one_screen_and_shows_the_quickstart(self):
        readme = read(PAGES[0])
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


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
