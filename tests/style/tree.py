"""The files of the source tree, as the style tests see them."""
import os
import re

LAYERS = ["runtime", "kernels", "dtensor", "styles"]  # each may include itself and those before it
# The rooms of dtensor, likewise; public headers lie in the rooms of their sources.
DTENSOR_ROOMS = ["mesh", "tensor", "tape", "redistribute", "capture", "ops", "distribute", "backward", "optim", "calibration", "checkpoint"]
FOLDERS = LAYERS + ["profiling", "examples", "tools", "tests", "include"]
SOURCES = (".h", ".cpp", ".cu")
PUBLIC = "include/coshard/"
INCLUDE = re.compile(r'^#include ["<]([^">]+)[">]', re.M)
# What the compiler may take for an include, and how each is written, so that INCLUDE finds it.
ANY_INCLUDE = re.compile(r"(?:#|%:|\?\?=).*\b(?:include|include_next|import)\b")
PLAIN_INCLUDE = re.compile(r'#include (?:"([^"]+)"|<([^>]+)>)(?: *//.*)?')


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


def includes_not_plain(text):
    """Lines that include something in words that the rules of layers do not read."""
    lines = text.split("\n")
    joined = text.replace("\\\n", "").split("\n")
    problems = []
    for line in joined:
        if "include" not in line and "import" not in line or not ANY_INCLUDE.search(line):
            continue
        if re.match(r"\s*(//|\*)", line) or re.match(r'[^#%?]*"', line):  # a comment, or in a string
            continue
        plain = PLAIN_INCLUDE.fullmatch(line)
        name = plain and (plain.group(1) or plain.group(2))
        if not plain or line not in lines or {".", ".."} & set(name.split("/")):
            problems.append(line)
        elif plain.group(1) and not name.endswith((".h", ".cpp", ".cuh")):
            problems.append(line)
    return problems


def level(name):
    """Layer and room of a `place`; None: of no layer. A lower one may not include, or define for, a higher one."""
    layer = name.split("/")[0]
    return (LAYERS.index(layer), room_of(name) or 0) if layer in LAYERS else None


def includes_upward(path, names):
    """Which of these names, as in `includes`, lie in a higher layer or room. The headers without a folder hold all layers."""
    own = level(place(path))
    if own is None:
        return []
    def above(name):
        its = level(name)
        return its > own if its else "/" not in name and name in UMBRELLAS
    return [name for name in names if above(name)]


UMBRELLAS = ("coshard.h", "debug.h", "asio.h", "device.h", "op.h", "simulate.h")
FUNCTION = re.compile(r"^(?!return|using|typedef|__attribute__)[A-Za-z][\w:<>,&* ]*[ &*]((?:\w+::)*(?!__attribute__)\w+)\(([^;{]*)([;{])", re.M)
ATTRIBUTE = re.compile(r"\[\[[^\]]*\]\] ?")
DEFAULT = re.compile(r" = (?:\{[^}]*\}|[^,)]*)")
NAMELESS = re.compile(r"^namespace \{$.*?^\}  // namespace$", re.M | re.S)
EXTERN = re.compile(r"^extern\b[^;{]*?(\w+)\)?(?:\([^;()]*\))?;", re.M)
CLASS = re.compile(r"^(?:class|struct) (?:\[\[\w+\]\] )?(\w+)\b[^;{]*\{", re.M)


def types_of(parameters):
    """Of a list of parameters, without their names."""
    bare = DEFAULT.sub("", parameters.rpartition(")")[0])
    return ",".join(re.sub(r"(?<=[ &*>])\w+$", "", " ".join(each.split())).strip() for each in bare.split(","))


def defined_above(files):
    """Of texts by path: what a room declares and a higher one defines, or declares again, so that a call needs no include upward."""
    homes, signatures, problems = {}, {}, []
    for path, text in files.items():
        text, own = ATTRIBUTE.sub("", text), level(place(path))
        if path.endswith(".h"):
            for name, parameters, end in FUNCTION.findall(text):
                if end == ";":
                    homes.setdefault(name, set()).add(own)
                    signatures.setdefault((name, types_of(parameters)), {})[own] = path
            for name in CLASS.findall(text):
                homes.setdefault(name, set()).add(own)
        else:
            problems += [f"{path} declares {name}: include its header"
                         for name, _, end in FUNCTION.findall(NAMELESS.sub("", text)) if end == ";"]
        for name in EXTERN.findall(text):
            definition = re.compile(rf"^(?!extern)\w[^#;\n]*\b{name}\b[^;]*[={{;]", re.M)
            if not any(definition.search(other) for there, other in files.items() if there.endswith(".cpp") and level(place(there)) == own):
                problems.append(f"{path} declares {name}, which its room does not define")
    for (name, _), paths in signatures.items():
        if len(paths) > 1:
            problems.append(f"{name} is declared in {' and '.join(paths.values())}")
    for path, text in files.items():
        if not path.endswith(".cpp"):
            continue
        for name, _, end in FUNCTION.findall(NAMELESS.sub("", ATTRIBUTE.sub("", text))):
            first, *rest = name.split("::")
            known = homes.get(first, set())
            if end == "{" and known and max(known) < level(path) and not (rest and first == "Tensor"):
                problems.append(f"{path} defines {name}, which a lower room declares")
    return problems
