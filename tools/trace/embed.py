#!/usr/bin/env python3
"""Makes one page of an HTML file and the style sheets and scripts beside it, and a C++ header of that.

usage: embed.py PAGE.html HEADER.h
"""
import os
import re
import sys

LINKED = re.compile(r'<link rel="stylesheet" href="([\w.]+)">|<script src="([\w.]+)"></script>')


def inlined(page):
    folder = os.path.dirname(page)

    def contents(found):
        style, script = found.groups()
        with open(os.path.join(folder, style or script), encoding="utf-8") as file:
            text = file.read()
        return f"<style>\n{text}</style>" if style else f"<script>\n{text}</script>"

    with open(page, encoding="utf-8") as file:
        return LINKED.sub(contents, file.read())


def main():
    page, header = sys.argv[1:]
    text = inlined(page).encode()
    rows = [", ".join(str(byte) for byte in text[i : i + 32]) for i in range(0, len(text), 32)]
    with open(header, "w", encoding="utf-8") as file:
        file.write("#pragma once\n// Made by tools/trace/embed.py.\nnamespace coshard::tools {\n\ninline constexpr char kPage[] = {\n")
        # as chars, whether they are signed or not
        file.write(",\n".join(re.sub(r"\d+", lambda n: str((int(n.group()) + 128) % 256 - 128), row) for row in rows))
        file.write("};\n\n}  // namespace coshard::tools\n")


if __name__ == "__main__":
    main()
