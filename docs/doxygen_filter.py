#!/usr/bin/env python3
"""What Doxygen reads in place of a header: `//` comments before a declaration, or behind one, become its documentation.

A comment block that stands at the head of the file documents the file. A line "Moves: …" begins an item of a list, and
lines that are indented beyond their block stay as they are.
"""
import os
import re
import sys

COMMENT = re.compile(r"^(\s*)//(?!/) ?(.*)$")
BEHIND = re.compile(r"^(\s*[^\s/].*[;,)])\s+// (.*)$")
ITEM = re.compile(r"^\s{1,6}([A-Z]\w*):\s+(.*)$")


def escaped(text):
    text = re.sub(r"\s*NOLINT.*", "", text)
    return re.sub(r"([\\@&<>#%$])", r"\\\1", text)


def block(lines, indent):
    """A comment's lines as Doxygen reads them."""
    out, in_code, in_item = [], False, False
    for line in lines:
        item = ITEM.match(line)
        in_item = item or (in_item and line.startswith("  "))
        code = line.startswith("  ") and not in_item
        if code != in_code and line.strip():
            out.append(f"{indent}/// " + (r"\verbatim" if code else r"\endverbatim"))
            in_code = code
        if item:
            out.append(f"{indent}/// - \\b {item[1]}: {escaped(item[2])}")
        else:
            out.append(f"{indent}/// {line if in_code else escaped(line)}".rstrip())
    if in_code:
        out.append(rf"{indent}/// \endverbatim")
    return out


def filtered(text, name):
    lines, out, i, head = text.split("\n"), [], 0, True
    while i < len(lines):
        match = COMMENT.match(lines[i])
        if not match or lines[i].lstrip().startswith("// ---"):
            behind = BEHIND.match(lines[i])
            out.append(f"{behind[1]}  ///< {escaped(behind[2])}" if behind else lines[i])
            head = head and (not lines[i].strip() or lines[i].startswith("#pragma"))
            i += 1
            continue
        comment = []
        while i < len(lines) and (match := COMMENT.match(lines[i])):
            comment.append(match[2])
            i += 1
        if head:
            out.append(f"/// \\file {name}")
            out.append("///")
        out += block(comment, re.match(r"\s*", lines[i - 1])[0])
        if head:
            out.append("")
        head = False
    return "\n".join(out)


if __name__ == "__main__":
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        print(filtered(file.read(), re.sub(r".*/include/", "", os.path.abspath(path))))
