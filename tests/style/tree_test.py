"""Tests of the tree itself. usage: tree_test.py SOURCE_ROOT"""
import os
import re
import sys
import unittest

from coroutine_test import coroutine_check
from tree import FOLDERS, INCLUDE, LAYERS, PUBLIC, includes, place, read, sources

ROOT = sys.argv.pop(1)
# Headers of back ends, and the only places that may include them.
ROOMS = {
    re.compile(r"^(cuda|cublas|cudnn)"): ["runtime/device/cuda/", "kernels/cuda/", "tests/support/fake_cuda/"],
    re.compile(r"^nvtx"): ["runtime/device/cuda/", "profiling/nvtx", "tests/profiling/nvtx"],
    re.compile(r"^nccl"): ["runtime/comm/nccl/", "tests/support/fake_cuda/"],
    re.compile(r"^mpi\.h"): ["runtime/comm/mpi/", "tests/runtime/comm/mpi/", "tools/mpi_all_reduce.cpp"],
    re.compile(r"^(dnnl|oneapi/)"): ["kernels/cpu/"],
}
MAX_LINES = 400
LONGER = {"examples/train.cpp": 664}  # a program that is read, and copied, as one file
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

    def test_no_layer_includes_upward(self):
        problems = []
        for path in sources(ROOT, LAYERS + ["include"]):
            layer = place(path).split("/")[0]
            for name in includes(ROOT, path):
                top = name.split("/")[0]
                if layer in LAYERS and top in LAYERS and LAYERS.index(top) > LAYERS.index(layer):
                    problems.append(f"{path} includes {name}")
        self.complain(problems)

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
        rosters = ("thread_roster.cpp", "process_roster.cpp", "run_on_asio.cpp", "job.h", "job.cpp", "store.h")
        simulated = ("sim_process.cpp", "sim_roster.h", "simulated_mpi.h", "simulation.h", "simulation.cpp")
        launchers = {f"runtime/launch/{name}" for name in rosters + simulated}
        for path in sources(ROOT):
            for name in includes(ROOT, path):
                room = re.match(r"runtime/comm/(\w+)/", name)
                extends = path.startswith("runtime/comm/mpi/") and name.startswith("runtime/comm/local/")
                if room and not path.startswith((room.group(0), "tests/")) and path not in launchers and not extends:
                    problems.append(f"{path} includes {name}")
        self.complain(problems)

    def test_no_file_is_longer_than_400_lines(self):
        lengths = [(read(ROOT, path).count("\n"), path) for path in sources(ROOT, suffixes=(".h", ".cpp", ".cu", ".py", "meson.build"))]
        self.complain([f"{path}: {lines} lines" for lines, path in lengths if lines > LONGER.get(path, MAX_LINES)])

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


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
