"""Programs outside the tree that use the library, each built in an empty folder and run.
usage: consumers_test.py KIND SOURCE_ROOT PREFIX COMPILER...    PREFIX: where `ninja install` has put it"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

kind, source, prefix, *compiler = sys.argv[1:]
here = pathlib.Path(__file__).resolve().parent
found = list(pathlib.Path(prefix).glob("**/pkgconfig/coshard.pc"))
if not found and kind != "subproject":
    sys.exit(f"nothing is installed in {prefix}: run `ninja install` first")
pkgconfig = found[0].parent if found else None
library = pkgconfig.parent if found else None
environment = dict(os.environ, CXX=" ".join(compiler))
if found:
    environment |= {"PKG_CONFIG_PATH": str(pkgconfig), "LD_LIBRARY_PATH": str(library)}


def run(*words, **options):
    print("+", *words, flush=True)
    return subprocess.run([str(w) for w in words], check=True, text=True, env=environment, **options)


def flags(*asked):
    return run("pkg-config", *asked, "coshard", capture_output=True).stdout.split()


STRICT = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def consumer_of_pkg_config(work):
    static = ["--static"] if not list(library.glob("libcoshard.so*")) else []
    run(*compiler, *STRICT, "-I", here / "own", here / "program.cpp", "-o", work / "consumer", *flags("--cflags", "--libs", *static))
    run(work / "consumer")


def consumer_of_cmake(work):
    run("cmake", "-S", here / "cmake", "-B", work, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", work)
    run(work / "consumer")


def two_shared_objects(work):
    build = [*compiler, *STRICT, *flags("--cflags")]
    plugins = [work / "a.so", work / "b.so"]
    for plugin in plugins:
        run(*build, "-fPIC", "-shared", here / "plugins/plugin.cpp", "-o", plugin, *flags("--libs"))
    run(*build, here / "plugins/host.cpp", "-o", work / "host", *flags("--libs"), "-ldl")
    run(work / "host", *plugins)


def hidden_names(work):
    """What is exported is declared in an installed header, or made from such by a template."""
    names = run("nm", "-DC", "--defined-only", library / "libcoshard.so", capture_output=True).stdout.splitlines()
    inside = [n for n in names if any(word in n for word in (" coshard::kernels::", " coshard::cpu::", "dnnl", " fmt::v"))]
    print(len(names), "exported names;", len(inside), "of the inside")
    sys.exit("\n".join(inside[:20])) if inside else None


def size(work):
    """A stripped program with the static library, or else the stripped shared library, is at most 5 MB."""
    static = library / "libcoshard.a"
    target = work / "stripped"
    if static.exists():
        quickstart = pathlib.Path(source) / "examples/quickstart.cpp"
        run(*compiler, "-std=c++20", "-O2", quickstart, "-o", target, *flags("--cflags", "--libs", "--static"))
    else:
        shutil.copy((library / "libcoshard.so").resolve(), target)
    run("strip", target)
    megabytes = target.stat().st_size / 1e6
    print(f"{megabytes:.2f} MB")
    if megabytes > 5:
        sys.exit("more than 5 MB")


def subproject(work):
    (work / "subprojects").mkdir()
    (work / "subprojects/coshard").symlink_to(source)
    for name in ("meson/meson.build", "program.cpp"):
        shutil.copy(here / name, work)
    shutil.copytree(here / "own", work / "own")
    run("meson", "setup", work / "build", work, "-Dcoshard:cuda=disabled", "-Dcoshard:nccl=disabled", "-Dcoshard:nvtx=disabled")
    commands = json.loads((work / "build/compile_commands.json").read_text())
    ours = [c["command"] for c in commands if "coshard_dtensor" in c["command"]]
    if not ours or not all(" -O2" in c for c in ours):
        sys.exit("the library is not optimised within a project that is not")
    if any("coshard/tests" in c["file"] or "coshard/examples" in c["file"] or "coshard/tools" in c["file"] for c in commands):
        sys.exit("more than the library is built")
    run("ninja", "-C", work / "build")
    run(work / "build/consumer")


KINDS = {
    "pkg-config": consumer_of_pkg_config,
    "cmake": consumer_of_cmake,
    "plugins": two_shared_objects,
    "exports": hidden_names,
    "size": size,
    "subproject": subproject,
}
with tempfile.TemporaryDirectory() as folder:
    try:
        KINDS[kind](pathlib.Path(folder))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{kind}: exit status {error.returncode}\n{error.stdout or ''}{error.stderr or ''}")
