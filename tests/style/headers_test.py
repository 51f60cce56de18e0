"""Every header compiles alone. One that its own source includes first is proven by the build, if nothing stands before it in a unity
file; the others are compiled here, those of CUDA where its toolkit is.
All public ones are compiled together where nothing but them can be found, so they reach no private one.
What programs include says in its first error line which options it needs, and what of a co_await is no awaitable.
usage: headers_test.py SOURCE_ROOT BUILD_ROOT COMPILER..."""
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from tree import INCLUDE, PUBLIC, place, read, sources

# Bodies that are compiled once per instruction set, with the namespace given from outside.
INSTRUCTIONS = ("kernels/cpu/simd/",)
# Headers of the tree that many others include, each before those that it includes itself, and one from outside. They are precompiled, in
# the combinations that several headers include: such a header has them from there, and sees no more than it would without.
PRECOMPILED = [
    "include/coshard/dtensor/tensor/tensor.h",
    "include/coshard/runtime/launch/world.h",
    "kernels/cuda/cuda.h",
    "include/coshard/runtime/device/device.h",
    "include/coshard/runtime/error.h",
]
OUTSIDE = "gtest/gtest.h"
TOOLKIT = ("cuda", "cublas", "nccl", "nvtx")


def name_of(header):
    """By which sources include a header of the tree."""
    return header.removeprefix("include/")


def first_sources(root, build):
    """The sources that a compiler of this build reads before any other: alone, or first in a unity file."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        compiled = {os.path.join(one["directory"], one["file"]) for one in json.load(file)}
    found = set()
    for path in compiled:
        if re.search(r"-unity\d+\.cpp$", path):
            with open(path, encoding="utf-8") as file:
                path = os.path.join(os.path.dirname(path), re.search(r'#include\s*[<"]([^>"]+)[>"]', file.read()).group(1))
        found.add(os.path.relpath(path, root))
    return found


def proven_by_its_source(root, header, compiled_first):
    source = place(header)[:-2] + ".cpp"
    if source not in compiled_first:
        return False
    first = INCLUDE.search(read(root, source))
    return first is not None and first.group(1) == name_of(header)


@cache
def included_by(root, header):
    """The headers of the tree that one includes whatever is defined, directly or not."""
    found, depth = set(), 0
    for line in read(root, header).splitlines():
        depth += bool(re.match(r"\s*#\s*if", line)) - bool(re.match(r"\s*#\s*endif", line))
        include = INCLUDE.match(line)
        if not include or depth:
            continue
        for folder in ("", "include/", "tests/"):
            if os.path.isfile(os.path.join(root, folder + include.group(1))):
                found |= {folder + include.group(1), *included_by(root, folder + include.group(1))}
                break
    return frozenset(found)


def precompiled_for(root, header):
    """What of PRECOMPILED this one includes, the first, and whether OUTSIDE: as names to include."""
    includes = included_by(root, header)
    names = [name_of(known) for known in PRECOMPILED if known in includes][:1]
    return (*names, OUTSIDE) if includes_outside(root, header, OUTSIDE) else tuple(names)


def includes_outside(root, header, begin):
    """Whether it includes a header that is not of the tree and begins so, directly or not."""
    named = (name for path in {header, *included_by(root, header)} for name in INCLUDE.findall(read(root, path)))
    return any(name.startswith(begin) for name in named)


# Flags without which the headers cannot be used, and what is said of them.
LANGUAGE = {
    "-std=c++17": "coshard needs C++20 or later: compile with -std=c++20",
    "-fno-exceptions": "coshard reports failures as exceptions: compile without -fno-exceptions",
    "-fno-rtti": "coshard passes typed exceptions and attributes: compile without -fno-rtti",
    "-DBOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE=16": "leave BOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE at 2",
    **{f"-DBOOST_ASIO_{name}": f"compile without BOOST_ASIO_{name}" for name in (
        "DISABLE_THREADS", "DISABLE_EPOLL", "DISABLE_EVENTFD", "HAS_IO_URING", "DISABLE_THREAD_KEYWORD_EXTENSION",
        "DISABLE_SMALL_BLOCK_RECYCLING", "DISABLE_STD_ATOMIC", "DISABLE_STD_EXCEPTION_PTR", "NO_EXCEPTIONS", "NO_TYPEID",
        "ENABLE_BUFFER_DEBUGGING", "ENABLE_HANDLER_TRACKING", "CUSTOM_HANDLER_TRACKING=<x.h>", "USE_TS_EXECUTOR_AS_DEFAULT")},
}
# Options of Asio that change nothing between the library and the program.
HARMLESS = ["-DBOOST_ASIO_NO_DEPRECATED", "-DBOOST_ASIO_NO_TS_EXECUTORS", "-DBOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE=2"]

# Bodies of a coroutine that await what is no awaitable, and what is said of them.
AWAITS = {
    "cs::Tensor y = co_await x.full_tensor();": "co_await: a Tensor is used without it; await x.redistribute(...)",
    "for (const cs::Tensor& each : std::vector<cs::Tensor>{x}) co_await each;": "co_await: a Tensor is used without it",
    "auto none = co_await 7; (void)none;": "co_await: this is no awaitable",
    "auto task = f(x); co_await task;": "co_await std::move(task)",
}
ASKING = "#include <coshard/coshard.h>\nnamespace cs = coshard;\ncs::Task<void> f(cs::Tensor x) {{ {} }}\n"


def unclear_refusals(root, compile_with):
    """Entry headers that say something else, or nothing, of a flag of LANGUAGE."""
    entries = [path for path in sources(root, ["include"], (".h",)) if "/" not in place(path)]
    for path in entries:
        for flag, said in LANGUAGE.items():
            errors = [line for line in compile_with(flag, path).splitlines() if "error:" in line]
            if not errors or said.split("=")[0] not in errors[0]:
                yield f"{path} with {flag}: {errors[:1]}"
    for flag in HARMLESS:
        if errors := compile_with(flag, "include/coshard/asio.h"):
            yield f"coshard/asio.h with {flag}: {errors}"


def unclear_awaits(compile_text):
    """Bodies of AWAITS of which the first error says something else, or which have more than one."""
    for body, said in AWAITS.items():
        errors = [line for line in compile_text(ASKING.format(body)).splitlines() if "error:" in line]
        if len(errors) != 1 or said not in errors[0]:
            yield f"{body}: {errors}"
    right = ASKING.format("auto r = x.redistribute(cs::Replicate()); cs::Tensor y = co_await r; auto t = f(y); co_await std::move(t);")
    if said := compile_text(right):
        yield f"{right}: {said}"


def main():
    root, build, *compiler = sys.argv[1:]
    flags = ["-std=c++20", "-O0", "-w"]
    public = ["-I", os.path.join(root, "include"), "-I", os.path.join(build, "include")]
    private = ["-I", root, "-I", build, "-I", os.path.join(root, "tests")]
    # clang precompiles in a third of the time of g++; without it nothing is precompiled.
    clang = shutil.which("clang++-14") or shutil.which("clang++")
    alone = [*compiler[:-1], clang] if clang else compiler
    # Paths within the tree are relative to its root: ccache serves another clone's.
    relocatable = ["-isysroot", root, *(word for flag in ("-fno-pch-timestamp", "-relocatable-pch") for word in ("-Xclang", flag))]
    headers = sources(root, suffixes=(".h",))
    nvcc = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
    if nvcc:
        private += ["-isystem", os.path.join(os.path.dirname(os.path.dirname(nvcc)), "include")]
    else:
        headers = [path for path in headers if not includes_outside(root, path, TOOLKIT)]
    compiled_first = first_sources(root, build)
    headers = [path for path in headers if not proven_by_its_source(root, path, compiled_first)]
    work = os.path.join(build, "tests/style/headers")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    # To an assembler file, not by -fsyntax-only: ccache, where it is in front of the compiler, then knows the result.
    environment = dict(os.environ, CCACHE_DEPEND="1", CCACHE_INODECACHE="1", CCACHE_SLOPPINESS="pch_defines,time_macros")

    def output(path, suffix):
        return os.path.join(work, path.replace("/", ",") + suffix)

    users = Counter(precompiled_for(root, path) for path in headers)
    combinations = [names for names, count in users.items() if clang and names and count > 2]

    def combined(path):
        names = precompiled_for(root, path)
        return "+".join(next((part for part in (names, names[:1]) if part in combinations), ()))

    def compile_alone(path, language="c++", suffix=".s"):
        found = public if path.startswith((PUBLIC, name_of(PUBLIC))) else public + private
        before = ["-include-pch", output(combined(path), ".pch")] if language == "c++" and combined(path) else []
        isa = ["-DCOSHARD_ISA=baseline"] if path.startswith(INSTRUCTIONS) else []
        if path.endswith("_f64.h"):
            isa.append("-DCOSHARD_F64")
        words = [*alone, *flags, *isa, *(relocatable if clang else []), *found, "-MD", "-MF", output(path, ".d"), "-o", output(path, suffix)]
        if language == "c++":
            words += [*before, "-S", "-x", language, os.path.join(root, path)]
        else:
            words += ["-x", language, output(path, "")]
        run = subprocess.run(words, capture_output=True, text=True, env=environment)
        return path, run.returncode, run.stderr

    def precompile(names):
        path = "+".join(names)
        with open(output(path, ""), "w", encoding="utf-8") as file:
            file.writelines(f"#include <{name}>\n" for name in names)
        return compile_alone(path, "c++-header", ".pch")

    # The last first: none may live on what another has included before it.
    together = "".join(f"#include <coshard/{place(path)}>\n" for path in reversed(sources(root, ["include"], (".h",))))
    run = subprocess.run([*compiler, *flags, *public, "-fsyntax-only", "-x", "c++", "-"], input=together, capture_output=True, text=True)
    if run.returncode:
        print(f"the public headers reach a private one:\n{run.stderr}")
        return 1

    def errors_with(flag, path):
        words = [*compiler, *flags, flag, "-Wfatal-errors", *public, "-fsyntax-only", "-x", "c++", os.path.join(root, path)]
        return subprocess.run(words, capture_output=True, text=True, env=dict(os.environ, LC_ALL="C")).stderr

    def errors_of(text):
        words = [*compiler, *flags, *public, "-fsyntax-only", "-x", "c++", "-"]
        return subprocess.run(words, input=text, capture_output=True, text=True, env=dict(os.environ, LC_ALL="C")).stderr

    unclear = list(unclear_awaits(errors_of))
    if unclear:
        print("the error is not the one line that tells what is awaited:", *unclear, sep="\n")
        return 1

    unclear = list(unclear_refusals(root, errors_with))
    if unclear:
        print("the first error is not the one line that tells of the option:", *unclear, sep="\n")
        return 1

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [(path, text) for path, code, text in pool.map(precompile, combinations) if code]
        failed = failed or [(path, text) for path, code, text in pool.map(compile_alone, headers) if code]
    shutil.rmtree(work)
    for path, text in failed:
        print(f"{path} does not stand alone:\n{text}")
    print(f"{len(headers) - len(failed)} of {len(headers)} headers stand alone")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
