"""The files of the source tree, as the style tests see them."""
import os

LAYERS = ["runtime", "kernels", "dtensor", "styles"]  # each may include itself and those before it
FOLDERS = LAYERS + ["profiling", "examples", "tools", "tests", "include"]
SOURCES = (".h", ".cpp", ".cu")


def sources(root, folders=FOLDERS, suffixes=SOURCES):
    """Paths below `root` of all files of these folders with these suffixes, sorted."""
    found = []
    for folder in folders:
        for where, _, names in os.walk(os.path.join(root, folder)):
            found += [os.path.relpath(os.path.join(where, n), root) for n in names if n.endswith(suffixes)]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()
