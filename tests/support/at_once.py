#!/usr/bin/env python3
"""Runs commands at the same time, for tests that mostly wait: their output follows, one after the other.

usage: at_once.py COMMAND... [--and COMMAND...]...     exit code: that of the first that failed; 77 if one was skipped and none failed
"""
import itertools
import subprocess
import sys

SKIPPED = 77


def main():
    commands = [list(words) for is_and, words in itertools.groupby(sys.argv[1:], lambda word: word == "--and") if not is_and]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands]
    codes = []
    for command, process in zip(commands, running):
        said, _ = process.communicate()
        print(f"-- {' '.join(command)}\n{said}", flush=True)
        codes.append(process.returncode)
    failed = [code for code in codes if code not in (0, SKIPPED)]
    return failed[0] if failed else max(codes)


if __name__ == "__main__":
    sys.exit(main())
