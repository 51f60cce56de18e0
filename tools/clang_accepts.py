"""Compiles with clang, without code, what of a g++ build reads changed files: clang rejects C++ that g++ takes.

usage: clang_accepts.py BUILD < FILES, ended by NUL each  prints clang's errors; the exit status says whether there are any
"""
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

DROPPED = re.compile(r"-f(coroutines|no-ipa-\S+)|-Wno-(subobject-linkage|restrict)|-M[DQFT]*|-o|\S+\.o(\.d)?|-c")


def reads(entry, changed):
    """Whether a compiler run reads one of these files first-hand: as its source, or as a source of its unity file."""
    path = os.path.join(entry["directory"], entry["file"])
    with open(path, encoding="utf-8") as file:
        named = re.findall(r'#include\s*[<"]([^>"]+\.cpp)[>"]', file.read()) if re.search(r"-unity\d+\.cpp$", path) else []
    sources = [os.path.normpath(os.path.join(os.path.dirname(path), name)) for name in named] or [os.path.normpath(path)]
    return not changed.isdisjoint(sources)


def errors_of(entry):
    words = shlex.split(entry["command"])
    words = words[next(i for i, word in enumerate(words) if word.endswith("++")) + 1:]
    command = ["clang++-14", "-fsyntax-only", "-Wno-unknown-warning-option", "-Wno-unused-parameter", "-Wno-missing-field-initializers",
               *(word for word in words if not DROPPED.fullmatch(word))]
    return subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True, check=False)


def main(build, files):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    changed = {os.path.abspath(path) for path in files if path.endswith(".cpp")}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        ended = list(pool.map(errors_of, [entry for entry in entries if reads(entry, changed)]))
    for one in ended:
        print(one.stderr, end="")
    print(f"clang reads {len(ended)} units: {sum(one.returncode != 0 for one in ended)} with errors")
    return any(one.returncode for one in ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.stdin.read().split("\0")))
