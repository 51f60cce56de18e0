"""Which suites `tools/check --changed` runs.

usage: changed_suites.py < FILES, ended by NUL each  prints the suites of their folders, and smoke-LAYER of each layer above
       changed_suites.py --left-out BUILD SUITE...  prints the tests of a build folder that are in none of these suites
"""
import json
import os
import subprocess
import sys

LAYERS = ["runtime", "kernels", "dtensor", "styles", "profiling", "tools", "integration"]  # each may use those before it
FOLDERS = {"examples": "integration"}  # whose tests lie in a folder of another name
OTHERS = ["docs", "conformance", "style", "consumers"]
ALL_LAYERS = ("tests/support/", "tests/meson.build", "meson.build", "meson_options.txt", "packaging/", "subprojects/")


def suites_of(paths):
    changed, lowest = set(), len(LAYERS)
    for path in paths:
        if path.startswith(ALL_LAYERS) or os.path.dirname(path) == "include/coshard":
            lowest = -1
        folder = path.removeprefix("include/coshard/").removeprefix("tests/").split("/")[0]
        folder = "docs" if path.endswith(".md") else FOLDERS.get(folder, folder)
        if path == "CMakeLists.txt":
            folder = "consumers"
        if folder in LAYERS:
            lowest = min(lowest, LAYERS.index(folder))
        if folder in LAYERS + OTHERS:
            changed.add(folder)
        if folder == "dtensor":
            changed.add("conformance")  # every operator in every layout
    return sorted(changed) + [f"smoke-{layer}" for layer in LAYERS[lowest + 1:] if layer not in changed]


def left_out(build, suites):
    listed = subprocess.run(["meson", "introspect", "--tests", build], check=True, capture_output=True, text=True).stdout
    tests = {test["name"]: {suite.split(":")[-1] for suite in test["suite"]} for test in json.loads(listed)}
    ran = set(suites) | {"rules"}
    return [name for name, own in tests.items() if not own & ran or own & {"again", "mpi"}]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--left-out"]:
        print("Not run:", ", ".join(left_out(sys.argv[2], sys.argv[3:])))
    else:
        for suite in suites_of(sys.stdin.read().split("\0")):
            print(suite)
