#!/usr/bin/env python3
"""Turns the C++ blocks of a page into a test. usage: snippets.py PAGE.md OUT.cpp

Every block fenced as ```cpp is compiled and run, on 2 ranks as threads. What a block is follows from its lines:
  - with a line that begins a type or a function, it stands in the page's namespace as it is, and each
    `cs::Task<void> name(cs::World& world)` in it is run, and each `void name()`, as it is;
  - else it is the body of such a function, and sees `world` and what blocks before it on the page defined.
A page says what a reader need not see in comments around the block:
  <!-- given ... -->              lines before the block (or before what is run)
  <!-- given on 4 ranks ... -->   the same, and so many ranks
  <!-- given, not run ... -->     the same; compiled only
  <!-- then ... -->               lines after it: what must hold now
  <!-- run ... -->                a block that is not shown
Includes are limited to <coshard/*.h>, as for any program; a shape that is no program is fenced as ```text.
"""
import os
import re
import sys

PIECE = re.compile(
    r"^<!-- given(?P<how>[^\n]*?)(?:\n(?P<given>.*?))?-->\n|^<!-- then\n(?P<then>.*?)-->\n|^<!-- run\n(?P<hidden>.*?)-->\n|^(?P<indent> *)```cpp\n(?P<code>.*?)^ *```\n",
    re.S | re.M)
DEFINES = re.compile(r"^(?:struct|class|template)\b|^[\w:<>,&* ]+ \w+\([^;=]*\) \{$", re.M)
PROGRAM = re.compile(r"^cs::Task<void> (\w+)\(cs::World& \w+\) \{", re.M)
PLAIN = re.compile(r"^void (\w+)\(\) \{", re.M)
INCLUDE = re.compile(r"^#include (.*)\n", re.M)


class Block:
    def __init__(self, code, line):
        self.code, self.line = code, line
        self.given = self.then = ""
        self.given_line = self.then_line = 0
        self.ranks, self.runs = 2, True

    def defines(self):
        return DEFINES.search(self.code) is not None


def blocks_of(text):
    """The blocks of a page, in order, with what is said around them."""
    blocks, given = [], None
    for piece in PIECE.finditer(text):
        line = text.count("\n", 0, piece.start()) + 2
        if piece["hidden"] is not None:
            blocks.append(Block(piece["hidden"], line))
        elif piece["code"] is not None:
            code = re.sub(rf"^{piece['indent']}", "", piece["code"], flags=re.M)
            block = Block(code, line)
            if given is not None:
                how = given["how"]
                if not re.fullmatch(r"(?: on \d+ ranks)?(?:, not run)?:? *", how):
                    sys.exit(f"line {line}: a given that says '{how}'")
                block.given, block.given_line = given["given"] or "", text.count("\n", 0, given.start()) + 2
                block.ranks = int(re.search(r"\d+", how)[0]) if "ranks" in how else 2
                block.runs = "not run" not in how
                given = None
            blocks.append(block)
        elif piece["then"] is not None:
            blocks[-1].then, blocks[-1].then_line = piece["then"], line
        else:
            given = piece
    return blocks


def at(page, line, code):
    """`code` without its includes, as of that line of the page."""
    return f'#line {line} "{page}"\n' + INCLUDE.sub("\n", code)


def function(name, page, block, body):
    given = at(page, block.given_line, block.given) if block.given else ""
    then = at(page, block.then_line, block.then) if block.then else ""
    kind = "static" if block.runs else "inline"
    return f"{kind} cs::Task<void> {name}(cs::World& world) {{\n{given}{body}{then}  co_return;\n}}\n"


def test(suite, name, program, ranks):
    return (f"TEST({suite}, {name}) {{\n  cs::run_ranks({{.ranks = {ranks}, .timeout = std::chrono::seconds(60)}}, "
            f"[](cs::World& world) {{ return {program}(world); }});\n}}\n")


def source_of(path):
    page = os.path.basename(path)
    suite = "Page" + "".join(word.capitalize() for word in re.split(r"\W", page.removesuffix(".md")))
    with open(path, encoding="utf-8") as file:
        blocks = blocks_of(file.read())
    includes = ["<coshard/coshard.h>", "<gtest/gtest.h>", "<chrono>"]
    body = ""
    for block in blocks:
        includes += INCLUDE.findall(block.given + block.code)
        if not block.defines():
            name = f"line_{block.line}"
            body += function(name, page, block, at(page, block.line, block.code))
            body += test(suite, f"Line{block.line}", name, block.ranks) if block.runs else ""
            continue
        body += at(page, block.given_line, block.given) if block.given else ""
        body += at(page, block.line, block.code.replace("namespace cs = coshard;", ""))
        for name in PROGRAM.findall(block.code) if block.runs else []:
            body += test(suite, name, name, block.ranks)
        for name in PLAIN.findall(block.code) if block.runs else []:
            body += f"TEST({suite}, {name}) {{ {name}(); }}\n"
        if block.then:
            name = f"after_{block.line}"
            body += function(name, page, block, "") + test(suite, f"After{block.line}", name, block.ranks)
    lines = "".join(f"#include {name}\n" for name in dict.fromkeys(includes))
    return f"{lines}namespace cs = coshard;\nnamespace {suite.lower()} {{\n{body}}}\n"


if __name__ == "__main__":
    text = source_of(sys.argv[1])
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write(text)
