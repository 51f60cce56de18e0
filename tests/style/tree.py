"""The files of the source tree, as the style tests see them."""
import os
import re

LAYERS = ["runtime", "kernels", "dtensor", "styles"]  # each may include itself and those before it
# The rooms of dtensor, likewise; public headers lie in the rooms of their sources.
DTENSOR_ROOMS = ["mesh", "tensor", "tape", "redistribute", "capture", "ops", "distribute", "backward", "optim", "calibration", "checkpoint"]
FOLDERS = LAYERS + ["profiling", "examples", "tools", "tests", "include"]
SOURCES = (".h", ".cpp", ".cu")
PUBLIC = "include/coshard/"
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


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


def place(path):
    """A path as layers and folders know it: that of a public header begins with its layer."""
    return path.removeprefix(PUBLIC)


def includes(root, path):
    """What a file includes, as `place` names it."""
    return [name.removeprefix("coshard/") for name in INCLUDE.findall(read(root, path))]


def room_of(name):
    """Which of DTENSOR_ROOMS a `place` lies in, as its number; None: not in dtensor. ValueError: in none of them."""
    layer, *rest = name.split("/")
    return DTENSOR_ROOMS.index(rest[0]) if layer == "dtensor" else None
