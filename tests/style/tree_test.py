"""Tests of the tree itself. usage: tree_test.py SOURCE_ROOT"""
import os
import re
import sys
import unittest

from coroutine_test import coroutine_check
from tree import FOLDERS, INCLUDE, LAYERS, PUBLIC, SOURCES, defined_above, includes, includes_not_plain, includes_upward, place, read, sources

ROOT = sys.argv.pop(1)
# Headers of back ends, and the only places that may include them.
ROOMS = {
    re.compile(r"^(cuda|cublas|cudnn)"): ["runtime/device/cuda/", "kernels/cuda/", "tests/support/fake_cuda/"],
    re.compile(r"^nvtx"): ["runtime/device/cuda/", "profiling/nvtx", "tests/profiling/nvtx"],
    re.compile(r"^nccl"): ["runtime/comm/nccl/", "tests/support/fake_cuda/"],
    re.compile(r"^mpi\.h"): ["runtime/comm/mpi/", "tests/runtime/comm/mpi/", "tools/mpi_all_reduce.cpp"],
    re.compile(r"^(dnnl|oneapi/)"): ["kernels/cpu/"],
}
MAX_LINES = 800
MAX_FUNCTION = 50  # lines
# The packages that the project is built on, by a header of each.
OWNERS = {
    "Boost.Asio": r"boost/asio",
    "CUDA Toolkit": r"cuda(_runtime(_api)?)?\.h",
    "NCCL": r"nccl\.h",
    "MPI": r"mpi\.h",
    "range-v3": r"range/v3/",
    "GoogleTest": r"gtest/gtest\.h",
    "NVTX": r"nvtx3/",
}


class Tree(unittest.TestCase):
    def complain(self, problems):
        self.assertFalse(problems, "\n" + "\n".join(problems))

    def test_no_layer_or_room_includes_upward(self):
        self.complain([
            f"{path} includes {name}"
            for path in sources(ROOT, LAYERS + ["include"])
            for name in includes_upward(path, includes(ROOT, path))
        ])

    def test_includes_are_written_plainly(self):
        """As `#include "FOLDER/FILE.h"` from the root, or in angle brackets: the tests of what may include what read no other form."""
        self.complain([f"{path}: {line.strip()}" for path in sources(ROOT) for line in includes_not_plain(read(ROOT, path))])

    def test_no_layer_has_sources_of_other_suffixes(self):
        known = SOURCES + (".build", ".py", ".in", ".md", ".txt", ".supp", ".map")
        self.complain([path for path in sources(ROOT, LAYERS, ("",)) if not path.endswith(known)])

    def test_no_room_defines_what_a_lower_one_declares(self):
        """Except methods of Tensor. Else a lower room could call into a higher one without including it."""
        above_kernels = ["dtensor", "styles", PUBLIC + "dtensor", PUBLIC + "styles"]
        files = {path: read(ROOT, path) for path in sources(ROOT, above_kernels, (".h", ".cpp"))}
        self.assertTrue(any("redistribute(" in text for text in files.values()))
        self.complain(defined_above(files))

    def test_only_profiling_tools_examples_and_tests_include_profiling(self):
        self.complain([
            f"{path} includes {name}"
            for path in sources(ROOT, LAYERS + ["include"])
            # the way in for programs
            if path != PUBLIC + "debug.h" and not place(path).startswith("profiling/")
            for name in includes(ROOT, path)
            if name.startswith("profiling/")
        ])

    def test_public_headers_include_only_each_other(self):
        problems = []
        for path in sources(ROOT, ["include"]):
            for name in INCLUDE.findall(read(ROOT, path)):
                ours = name.startswith("coshard/")
                if ours and not os.path.exists(os.path.join(ROOT, "include", name)) and name != "coshard/version.h":
                    problems.append(f"{path} includes {name}, which is not public")
                if not ours and f'"{name}"' in read(ROOT, path):
                    problems.append(f'{path} includes "{name}"')
        self.complain(problems)

    def test_a_public_header_is_included_by_its_installed_name(self):
        self.complain([
            f'{path} includes "{name}": write <coshard/{place(name)}>'
            for path in sources(ROOT)
            for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', read(ROOT, path), re.M)
            if name.startswith(("coshard/", PUBLIC))
        ])

    def test_public_classes_are_declared_in_public_headers_alone(self):
        """Sources are compiled with hidden visibility; the first declaration of a class decides, and would hide an exported one."""
        declared = r"^(?:class|struct|enum(?: class)?) (?:\[\[\w+\]\] )?(\w+)\b"
        public = {name for path in sources(ROOT, ["include"]) for name in re.findall(declared + r"[^;{]*\{", read(ROOT, path), re.M)}
        self.assertIn("WorldOptions", public)
        self.complain([
            f"{path} declares {name}: include the public header that defines it"
            for path in sources(ROOT)
            if not path.startswith(("include/", "tests/", "examples/"))
            for name in re.findall(declared + r"[^;{]*;", read(ROOT, path), re.M)
            if name in public
        ])

    def test_headers_of_back_ends_stay_in_their_rooms(self):
        problems = []
        for path in sources(ROOT):
            for name in includes(ROOT, path):
                for pattern, rooms in ROOMS.items():
                    if pattern.match(name) and not path.startswith(tuple(rooms)):
                        problems.append(f"{path} includes {name}")
        self.complain(problems)

    def test_each_of_the_owners_packages_is_used(self):
        used = {  # tests alone, such as those with fakes of a package, count for GoogleTest
            name for path in sources(ROOT) for name in INCLUDE.findall(read(ROOT, path))
            if name.startswith("gtest/") or not path.startswith("tests/")
        }
        self.complain([
            f"no source includes a header of {package}" for package, header in OWNERS.items()
            if not any(re.match(header, name) for name in used)
        ])

    def test_views_of_range_v3_are_in_no_header(self):
        self.complain([
            f"{path} includes {name}" for path in sources(ROOT, suffixes=(".h",))
            for name in INCLUDE.findall(read(ROOT, path))
            if name.startswith("range/v3/")
        ])

    def test_no_kernel_waits_while_it_holds_scratch_memory(self):
        # Scratch memory is its thread's, which ranks share: none may take its turn before a kernel
        # has ended. So the bodies know of nothing that waits, and nobody else asks for the memory.
        waits = re.compile(r"runtime/(coro|comm|launch)/|boost/|(thread|future|mutex|condition_variable)$")
        problems = []
        for path in sources(ROOT):
            for name in includes(ROOT, path):
                inside = path.startswith(("kernels/", "tests/kernels/"))
                if path.startswith("kernels/") and waits.match(name) or name.endswith("/scratch.h") and not inside:
                    problems.append(f"{path} includes {name}")
        table = read(ROOT, "kernels/cpu/table.cpp")  # nor does a body get the device, which can be waited for
        if "[](Device&, const Kernel& args) { cpu::run(args); }" not in table:
            problems.append("kernels/cpu/table.cpp: a kernel is given more than its arguments")
        self.complain(problems)

    def test_a_communicator_is_one_folder_and_one_word(self):
        build = read(ROOT, "runtime/comm/meson.build")
        words = re.search(r"communicator_names = \[(.*?)\]", build, re.S).group(1)
        words = re.findall(r"'(\w+)'", words)
        base = os.path.join(ROOT, "runtime/comm")
        folders = [name for name in os.listdir(base) if os.path.isdir(os.path.join(base, name))]
        # mpi is not chosen by name: it is how ranks of `local` in several processes reach each other.
        self.assertEqual(sorted(words), sorted(set(folders) - {"mpi"}))
        problems = []
        # Ranks of one process (threads, tasks on a caller's context, a simulation) meet by the thread group of `local`; nobody else
        # knows a back end by its headers. A store takes the place of MPI.
        directorys = ("thread_directory.cpp", "process_directory.cpp", "run_on_asio.cpp", "job.h", "job.cpp", "store.h")
        simulated = ("sim_process.cpp", "sim_directory.h", "simulated_mpi.h", "simulation.h", "simulation.cpp")
        launchers = {f"runtime/launch/{name}" for name in directorys + simulated}
        for path in sources(ROOT):
            for name in includes(ROOT, path):
                room = re.match(r"runtime/comm/(\w+)/", name)
                extends = path.startswith("runtime/comm/mpi/") and name.startswith("runtime/comm/local/")
                if room and not path.startswith((room.group(0), "tests/")) and path not in launchers and not extends:
                    problems.append(f"{path} includes {name}")
        self.complain(problems)

    def test_no_file_is_longer_than_800_lines(self):
        lengths = [(read(ROOT, path).count("\n"), path) for path in sources(ROOT, suffixes=(".h", ".cpp", ".cu", ".py", "meson.build"))]
        self.complain([f"{path}: {lines} lines" for lines, path in lengths if lines > MAX_LINES])

    def test_a_class_has_one_source(self):
        """Its members are defined in one file; methods of Tensor lie with the functions that they call."""
        declared = r"^\s*(?:template <[^\n]*>\s*)?(?:class|struct) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?: :[^;{]*)?\s*\{"
        classes = {name for path in sources(ROOT) for name in re.findall(declared, read(ROOT, path), re.M)}
        self.assertIn("LocalGroup", classes)
        member = re.compile(r"^(?![ #/}])[^\n(;={}]*?\b(\w+)::(?:\w+::)*(?:~?\w+|operator[^\s(]+)\(", re.M)
        defined = {}
        for path in sources(ROOT, LAYERS + ["profiling", "tools", "examples"], (".cpp", ".cu")):
            text = read(ROOT, path)
            space = re.search(r"^namespace ([\w:]+) \{", text, re.M)
            for name in set(member.findall(text)) & classes:
                if name != "Tensor" or not path.startswith("dtensor/") or path.startswith("dtensor/tensor/"):
                    defined.setdefault((space and space.group(1), name), []).append(path)
        self.complain([f"{name} is defined in {' and '.join(paths)}" for (_, name), paths in defined.items() if len(paths) > 1])

    def test_no_function_is_longer_than_50_lines(self):
        problems = []
        for path in sources(ROOT, LAYERS + ["profiling", "tools", "examples", "include"]):
            begun = 0
            for number, line in enumerate(read(ROOT, path).split("\n"), 1):
                if line == "}" and number - begun > MAX_FUNCTION:  # of a class: "};"
                    problems.append(f"{path}:{begun}: {number - begun} lines")
                if re.match(r"[^\s#/}]", line):
                    begun = number
        self.complain(problems)

    def test_every_header_begins_with_pragma_once_and_says_what_it_is(self):
        self.complain([
            path for path in sources(ROOT, suffixes=(".h",))
            if not re.match(r"#pragma once\n//", read(ROOT, path))
        ])

    def test_no_header_uses_a_whole_namespace(self):
        self.complain([
            path for path in sources(ROOT, suffixes=(".h",))
            if re.search(r"^using namespace", read(ROOT, path), re.M)
        ])

    def test_every_build_file_begins_with_a_comment(self):
        paths = ["meson.build"] + sources(ROOT, suffixes=("meson.build",))
        self.complain([path for path in paths if not re.match(r"# ?\S", read(ROOT, path))])

    def test_nothing_that_gcc_12_miscompiles_is_awaited(self):
        self.complain([
            f"{path}:{line}: {what}: {shown}"
            for path in sources(ROOT)
            for line, what, shown in coroutine_check.problems_in(read(ROOT, path))
        ])

    def test_no_work_is_left_behind_in_comments(self):
        words = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\()")
        self.complain([path for path in sources(ROOT) if words.search(read(ROOT, path))])

    def test_no_folder_is_a_drawer(self):
        drawers = {"util", "utils", "common", "misc", "helpers"}
        self.complain([
            os.path.relpath(where, ROOT)
            for folder in FOLDERS
            for where, _, _ in os.walk(os.path.join(ROOT, folder))
            if os.path.basename(where) in drawers
        ])


class Rules(unittest.TestCase):
    """That the rules of layers and rooms find what they are to find, however it is written."""

    def test_an_include_in_other_words_is_found(self):
        for line in ('#include"x.h"', '# include "x.h"', ' #include "x.h"', '#include /* */ "x.h"', '/* */ #include "x.h"', "#include UP",
                     '%:include "x.h"', '#inc\\\nlude "x.h"', '#include "../ops/x.h"', '#include "./dtensor/x.h"', '#include <a/../b.h>',
                     '#include "dtensor/ops/list.inc"', '#import "x.h"'):
            self.assertTrue(includes_not_plain(line + "\n"), line)
        for line in ('#include "dtensor/mesh/x.h"', "#include <vector>", "#include <a.h>  // for b", "// an #include of x", "#pragma once"):
            self.assertFalse(includes_not_plain(line + "\n"), line)

    def test_an_include_upward_is_found(self):
        for path, name in (("runtime/error.cpp", "styles/style.h"), ("dtensor/mesh/x.cpp", "dtensor/ops/y.h"),
                           ("dtensor/ops/x.h", "coshard.h"), ("include/coshard/runtime/x.h", "debug.h")):
            self.assertEqual(includes_upward(path, [name]), [name])
        for path, name in (("styles/x.cpp", "runtime/y.h"), ("dtensor/ops/x.cpp", "dtensor/mesh/y.h"), ("runtime/x.cpp", "version.h"),
                           ("runtime/x.cpp", "mpi.h"), ("include/coshard/coshard.h", "styles/x.h")):
            self.assertEqual(includes_upward(path, [name]), [])

    def test_a_definition_above_its_declaration_is_found(self):
        low, up = "dtensor/mesh/a", "dtensor/ops/b.cpp"
        for declared, defined in (("int f(int x);", "int f(int x) {"), ("[[nodiscard]] int f(int x);", "int f(int x) {"),
                                  ("extern int (*f)(int);", "int (*f)(int) = nullptr;"), ("extern int f;", "int f = 1;")):
            self.assertTrue(defined_above({low + ".h": declared + "\n", up: defined + "\n}\n"}), declared)
            self.assertFalse(defined_above({low + ".h": declared + "\n", low + ".cpp": defined + "\n}\n"}), declared)
        self.assertTrue(defined_above({low + ".cpp": "int f(int x);\n", up: "int f(int x) {\n}\n"}))
        again = {low + ".h": "int f(int x);\n", "dtensor/ops/b.h": "[[nodiscard]] int f(int y = 1);\n", up: "int f(int x) {\n}\n"}
        self.assertTrue(defined_above(again))
        self.assertFalse(defined_above({low + ".h": "int f(int x);\n", "dtensor/ops/b.h": "int f(long x);\n", up: "int f(long x) {\n}\n"}))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
