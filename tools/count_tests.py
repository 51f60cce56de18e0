"""Adds up the tests that meson ran, GoogleTest cases one by one, and prints the closing line of tools/check; before it each
test that failed, with the lines that say why.

usage: count_tests.py FAILED BROKEN LEFT_OUT BUILD_FOLDER...
FAILED: how many builds, runs of tests and other commands failed; BROKEN of them are no tests, and count as failed ones. LEFT_OUT: parts
that this machine cannot build; they count as skipped. Exit code 1 when anything failed, 0 otherwise.
"""
import glob
import json
import os
import re
import sys

CASES = {
    "passed": re.compile(r"^\[  PASSED  \] (\d+) tests?", re.M),
    "failed": re.compile(r"^ ?(\d+) FAILED TESTS?", re.M),
    "skipped": re.compile(r"^\[  SKIPPED \] (\d+) tests?", re.M),
}
WHY = re.compile(r"FAILED|Failure|[Ee]rror|Sanitizer|Expected|Which is|actual|FATAL|[Tt]imed? ?out|assert")
SHOWN = 20  # lines of one test
RESULTS = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}


def count(test):
    """(passed, failed, skipped) of one entry of testlog.json."""
    found = {}
    for name, pattern in CASES.items():
        match = pattern.search(test.get("stdout") or "")
        if match:
            found[name] = int(match.group(1))
    outcome = RESULTS.get(test["result"], "failed")
    if not found:
        found = {outcome: 1}
    elif outcome == "failed" and not found.get("failed"):
        found["failed"] = 1  # it crashed, or a sanitizer spoke up at its end
    return found


def tell(folder, test):
    """Prints a failed test of a build folder: its name, meson's result, and the last lines that speak of a failure, or the
    last ones where none does."""
    print(f"FAILED: {folder}: {test['name']} ({test['result']})")
    lines = ((test.get("stdout") or "") + (test.get("stderr") or "")).splitlines()
    for line in ([line for line in lines if WHY.search(line)] or lines)[-SHOWN:]:
        print(f"  {line[:200]}")


def main():
    failed, broken, left_out = map(int, sys.argv[1:4])
    total = {"passed": 0, "failed": broken, "skipped": left_out}
    for folder in sys.argv[4:]:
        for log in sorted(glob.glob(os.path.join(folder, "meson-logs", "testlog*.json"))):
            with open(log) as lines:
                for line in lines:
                    try:
                        test = json.loads(line)
                    except ValueError:
                        test = {"name": log, "result": "cut off"}  # meson was killed
                    counted = count(test)
                    if counted.get("failed"):
                        tell(folder, test)
                    for name, n in counted.items():
                        total[name] += n
    if failed and not total["failed"]:
        total["failed"] = failed  # meson failed, and none of its tests
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
