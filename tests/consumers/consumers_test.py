"""Programs outside the tree that use the library, each built in an empty folder and run.
usage: consumers_test.py KIND SOURCE_ROOT BUILD_FOLDER COMPILER...    BUILD_FOLDER: where it has been built, and is installed from"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

kind, source, build_folder, *compiler = sys.argv[1:]
here = pathlib.Path(__file__).resolve().parent
environment = dict(os.environ, CXX=" ".join(compiler))
library = prefix = None


def install(work):
    global library, prefix
    root = work / "root"
    run("meson", "install", "-C", build_folder, "--no-rebuild", "--quiet", "--strip", "--destdir", root)
    found = next(root.glob("**/pkgconfig/coshard.pc"))
    library, prefix = found.parent.parent, next(root.glob("**/include")).parent
    environment.update({
        "PKG_CONFIG_PATH": str(found.parent),
        "LD_LIBRARY_PATH": str(library),
    })


def run(*words, **options):
    print("+", *words, flush=True)
    return subprocess.run([str(w) for w in words], check=True, text=True, env=environment, **options)


def flags(*asked):
    return run("pkg-config", *asked, "coshard", capture_output=True).stdout.split()


STRICT = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]


def consumer_of_pkg_config(work):
    static = ["--static"] if not list(library.glob("libcoshard.so*")) else []
    run(*compiler, *STRICT, "-I", here / "own", here / "program.cpp", "-o", work / "consumer", *flags("--cflags", "--libs", *static))
    run(work / "consumer")
    run(*compiler, "-std=c++20", pathlib.Path(source) / "examples/quickstart.cpp", "-o", work / "quickstart", *flags("--cflags", "--libs", *static))


def found_by_cmake(work, arguments, pointer_bytes=""):
    """What find_package(coshard ARGUMENTS) says in an empty project; "found" if nothing."""
    project = work / "find"
    project.mkdir(exist_ok=True)  # with what CMake knows of the compiler
    (project / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.19)
project(find CXX)
set(CMAKE_SIZEOF_VOID_P {pointer_bytes or "${CMAKE_SIZEOF_VOID_P}"})
find_package(coshard {arguments})
message(STATUS "coshard: ${{coshard_FOUND}} ${{coshard_VERSION}}")
""")
    words = ["cmake", "-S", project, "-B", project / "build", "-U*coshard*", f"-DCMAKE_PREFIX_PATH={prefix}"]
    done = subprocess.run([str(w) for w in words], text=True, env=environment, capture_output=True)
    said = " ".join(done.stderr.split())
    found = "found" if "coshard: 1 0.1." in done.stdout else "not found"
    return f"{found}: {said}" if said else found


def find_package(work):
    """Versions, ranges of them, components and word sizes, as CMake's own version files treat them."""
    for arguments in ("", "0.1", "0.1.0 EXACT", "0.1...<0.2", "0.1.0...0.1.99", "QUIET OPTIONAL_COMPONENTS gpu"):
        said = found_by_cmake(work, arguments)
        print(f"find_package(coshard {arguments}): {said}")
        if said != "found":
            sys.exit("should be found")
    no_component = "coshard has no component 'gpu': write find_package(coshard) without COMPONENTS"
    refused = {"0.2": "0.1.0", "1": "0.1.0", "0.0": "0.1.0", "0.0...<0.2": "0.1.0", "0.1...0.2": "0.1.0", "0.1.1...0.1.9": "0.1.0",
               "COMPONENTS gpu": no_component, "QUIET COMPONENTS gpu": "", "QUIET 0.2": ""}
    for arguments, told in refused.items():
        said = found_by_cmake(work, arguments)
        print(f"find_package(coshard {arguments}): {said}")
        if not said.startswith("not found") or told not in said or (not told and said != "not found"):
            sys.exit(f"should be refused with {told!r}")
    if "version: 0.1.0 (8-byte pointers)" not in found_by_cmake(work, "", pointer_bytes=4):
        sys.exit("a project with other pointers is not told so")


def consumer_of_cmake(work):
    find_package(work)
    run("cmake", "-S", here / "cmake", "-B", work / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", work / "build")
    run(work / "build/consumer")


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
    inside = [n for n in names if any(word in n for word in (" coshard::kernels::", " coshard::cpu::", " dnnl::", " fmt::v"))]
    print(len(names), "exported names;", len(inside), "of the inside")
    sys.exit("\n".join(inside[:20])) if inside else None
    # g++ hides all members of a class whose first declaration is hidden, also one in a header of the inside.
    headers = "".join(h.read_text(encoding="utf-8") for h in (pathlib.Path(source) / "include/coshard").rglob("*.h"))
    classes = set(re.findall(r"^(?:class|struct) ([A-Z]\w+)(?: final)?(?: : [^{;]*)? {", headers, re.M))
    names_inside = run("nm", "-C", pathlib.Path(build_folder) / "packaging/libcoshard.so", capture_output=True).stdout
    local = re.findall(r"^\w+ t (coshard::(?:nn::)?(\w+)::\w+\([^{\n]*)$", names_inside, re.M)
    archives = pathlib.Path(build_folder).rglob("libcoshard_*.a")  # where inline members, hidden on purpose, are weak still
    inline = set(re.findall(r"^\w+ W (.*)$", run("nm", "-C", *archives, capture_output=True).stdout, re.M))
    hidden = [name for name, of in local if of in classes and name not in inline and "{lambda" not in name and "[clone" not in name]
    sys.exit("hidden members of public classes:\n" + "\n".join(hidden[:20])) if hidden else None


def size(work):
    """A stripped program with the static library, or else the stripped shared library, is at most 6 MB."""
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
    if megabytes > 6:
        sys.exit("more than 6 MB")


CPU_ALONE = ["-Dcoshard:cuda=disabled", "-Dcoshard:nccl=disabled", "-Dcoshard:nvtx=disabled"]


def subproject(work):
    """Of a project without optimisation, where the library is optimised; and built without it, which is faster."""
    (work / "subprojects").mkdir()
    (work / "subprojects/coshard").symlink_to(source)
    for name in ("meson/meson.build", "program.cpp"):
        shutil.copy(here / name, work)
    shutil.copytree(here / "own", work / "own")
    run("meson", "setup", work / "build", work, *CPU_ALONE)
    commands = json.loads((work / "build/compile_commands.json").read_text())
    ours = [c["command"] for c in commands if "coshard_dtensor" in c["command"]]
    if not ours or not all(" -O2" in c for c in ours):
        sys.exit("the library is not optimised within a project that is not")
    if any("coshard/tests" in c["file"] or "coshard/examples" in c["file"] or "coshard/tools" in c["file"] for c in commands):
        sys.exit("more than the library is built")
    # -O0 also for the loops of the cpu, which override the option.
    quick = ["-Dcoshard:optimise_within_others=false", "-Ddebug=false", "-Dunity=on", "-Dunity_size=12", "-Dcpp_args=-O0"]
    run("meson", "setup", work / "quick", work, *CPU_ALONE, "-Dcoshard:werror=true", *quick)
    run("ninja", "-C", work / "quick")
    run(work / "quick/consumer")


def fetched_by_cmake(work):
    """As the main build compiles, from a folder of links to the sources, so that ccache serves the library."""
    tree = work / "coshard"
    tree.mkdir()
    for path in pathlib.Path(source).iterdir():
        if not path.name.startswith((".", "build")):
            (tree / path.name).symlink_to(path)
    environment.update({"CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"})
    text = run("meson", "introspect", "--buildoptions", build_folder, capture_output=True).stdout
    same = ("buildtype", "optimization", "debug", "werror", "cuda", "nccl", "nvtx", "gpu_arch", "mpi", "onednn")
    values = {o["name"]: o["value"] for o in json.loads(text) if o["name"] in same}
    values = {name: ",".join(value) if isinstance(value, list) else str(value).lower() for name, value in values.items()}
    options = ";".join(f"-D{name}={values[name]}" for name in same)
    for generator in ("Unix Makefiles", "Ninja"):
        build = work / generator.split()[-1]
        run("cmake", "-G", generator, "-S", here / "fetchcontent", "-B", build, f"-DCOSHARD_SOURCE={tree}", f"-DOPTIONS={options}")
        run("cmake", "--build", build)
        run(build / "consumer")
    nowhere = ["-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF", "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"]
    for changed, told in {
        ("-UCOSHARD_MESON", *nowhere): "meson is not found: install it or set -DCOSHARD_MESON=PATH",
        (f"-DCOSHARD_MESON={shutil.which('meson')}", "-DOPTIONS=-Dcuda=perhaps"): 'Value "perhaps"',
    }.items():
        done = subprocess.run(["cmake", *changed, build], text=True, env=environment, capture_output=True)
        said = " ".join(done.stderr.split())
        print(said)
        if done.returncode == 0 or told not in said:
            sys.exit(f"should be refused with {told!r}")


# A program started without what ldconfig knows, so without an installation of CUDA's libraries.
BARE_LOADER = ["/lib64/ld-linux-x86-64.so.2", "--inhibit-cache"]


def needed_by(binary):
    text = run("readelf", "-dW", binary, capture_output=True).stdout
    return [line.split("[")[1].split("]")[0] for line in text.splitlines() if "(NEEDED)" in line]


def must_fail(words, *said):
    print("+", *words, flush=True)
    done = subprocess.run([str(w) for w in words], text=True, env=environment, capture_output=True)
    lines = [line for line in done.stderr.splitlines() if all(part in line for part in said)]
    print(done.stderr)
    if done.returncode == 0 or not lines:
        sys.exit(f"exit status {done.returncode}, and no line with {said}")


def without_cuda(work):
    """A build with the cuda device, put where no CUDA is, and then without its module."""
    module = library / "libcoshard_cuda.so"
    device = work / "device"
    run(*compiler, *STRICT, "-I", prefix / "include", here / "device.cpp", "-o", device, "-L", library, "-lcoshard", "-pthread")
    coshard = prefix / "bin/coshard"
    for binary in [library / "libcoshard.so", module, device, coshard]:
        print(binary.name, *needed_by(binary))
        cuda = [name for name in needed_by(binary) if any(word in name for word in ("cuda", "cublas", "nccl"))]
        if cuda:
            sys.exit(f"{binary.name} needs {cuda}")
    doctor = run(*BARE_LOADER, coshard, "doctor", capture_output=True).stdout
    print(doctor)
    for name in ("libcublasLt.so", "libnccl.so")[: 2 if "nccl" in doctor else 1]:
        if f"note: cannot load {name}" not in doctor and not list(pathlib.Path("/usr/lib").glob(f"**/{name}*")):
            sys.exit(f"`coshard doctor` does not miss {name}")
    run(*BARE_LOADER, device, "--device", "cpu")
    opened = subprocess.run([device, "--ranks", "1", "--device", "cuda"], text=True, env=environment, capture_output=True)
    print(opened.stderr)
    if module.name in opened.stderr:
        sys.exit("the module is there and is not opened")
    module.unlink()
    run(*BARE_LOADER, device, "--device", "cpu")
    must_fail([*BARE_LOADER, device, "--ranks", "1", "--device", "cuda"], "cuda:0: cannot load libcoshard_cuda.so", "beside", "LD_LIBRARY_PATH")


KINDS = {
    "pkg-config": consumer_of_pkg_config,
    "cmake": consumer_of_cmake,
    "plugins": two_shared_objects,
    "exports": hidden_names,
    "size": size,
    "subproject": subproject,
    "fetchcontent": fetched_by_cmake,
    "without cuda": without_cuda,
}
with tempfile.TemporaryDirectory() as folder:
    try:
        if kind not in ("subproject", "fetchcontent"):
            install(pathlib.Path(folder))
        KINDS[kind](pathlib.Path(folder))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{kind}: exit status {error.returncode}\n{error.stdout or ''}{error.stderr or ''}")
