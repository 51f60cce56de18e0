#!/usr/bin/env python3
"""Gathers what Sphinx reads: the files of docs/ and the pages at the root of the tree, beside each other, with the links between them.
usage: gather_pages.py SOURCE_ROOT FOLDER, which is not there yet"""
import glob
import os
import re
import shutil
import sys


def gather(root, folder):
    shutil.copytree(os.path.join(root, "docs"), folder, ignore=shutil.ignore_patterns("__pycache__"))
    for page in glob.glob(os.path.join(root, "*.md")):
        shutil.copy(page, folder)
    for page in glob.glob(os.path.join(folder, "*.md")):
        with open(page, encoding="utf-8") as file:
            text = file.read()
        with open(page, "w", encoding="utf-8") as file:
            file.write(re.sub(r"\]\((\.\./|docs/)", "](", text))


if __name__ == "__main__":
    gather(*sys.argv[1:])
