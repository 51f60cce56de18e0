"""What it takes to add one thing of each kind to the library. The additions lie in extensions/KIND: new files at their places, and
*.patch for those that change. All are put into one copy of the tree, where each may touch so many files and no more; then the
library is built there, and the extensions' tests run. Skipped where `patch` is not installed.
usage: extension_test.py SOURCE_ROOT BUILD_ROOT COMPILER..."""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT, BUILD = map(os.path.abspath, sys.argv[1:3])
COMPILER = [word for word in sys.argv[3:] if os.path.basename(word) != "ccache"] or ["c++"]
if CCACHE := shutil.which("ccache"):
    COMPILER.insert(0, CCACHE)  # meson leaves it out where CXX is set
HERE = os.path.join(ROOT, "tests/style/extensions")

# Of each kind: folders of its own, whose files do not count; files touched or added elsewhere; of these, lines changed (None: any).
KINDS = {
    "elementwise": ([], 3, None),  # an operator that differs from others in value and derivative only
    "kernel": ([], 5, None),       # an operator with a kernel of its own: arguments, loops, GPU body, operator, declaration
    "composed": ([], 1, None),     # an operator made of others
    "style": ([], 1, None),
    "module": ([], 1, None),       # one that can be sharded
    "communicator": (["runtime/comm/relay"], 1, 1),
    "device": (["runtime/device/relay", "kernels/relay"], 1, 1),
}
# The least that there is; -O0 also for the loops of the cpu, which override the option.
SETUP = ["-Dbuildtype=debug", "-Doptimization=0", "-Ddebug=false", "-Dcpp_args=-O0"]
SETUP += [f"-D{part}=disabled" for part in ("tests", "tools", "examples")]
SETUP += [f"-D{part}=disabled" for part in ("cuda", "nccl", "nvtx", "mpi", "onednn")]
TARGET = """
executable(
  'extension_tests',
  files({tests}, 'tests/support/main.cpp', 'tests/support/fake_mpi.cpp', 'tests/support/spread.cpp'),
  include_directories: root_inc,
  dependencies: [styles_dep, dependency('gtest', main: false)],
)
"""


def files_of(root):
    """Of git where it is the root of a checkout, else all but build folders."""
    if os.path.exists(os.path.join(root, ".git")):
        command = ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        return [path for path in listed if os.path.isfile(os.path.join(root, path))]
    found = []
    for where, folders, names in os.walk(root):
        inside = os.path.relpath(where, root)
        skipped = ("build", ".git", "__pycache__") if inside == "." else ("__pycache__",)
        folders[:] = [name for name in folders if not name.startswith(skipped)]
        found += [os.path.normpath(os.path.join(inside, name)) for name in names]
    return found


def copy_of(root, target):
    for path in files_of(root):
        os.makedirs(os.path.dirname(os.path.join(target, path)), exist_ok=True)
        shutil.copy2(os.path.join(root, path), os.path.join(target, path))


def changes_of(patch):
    """{changed file: lines that are new in it}"""
    changed, file = {}, None
    for line in patch.splitlines():
        if line.startswith("+++ "):
            file = line.split()[1]
            changed[file] = 0
        elif line.startswith("+"):
            changed[file] += 1
    return changed


def add(addition, tree):
    """Puts an addition into a tree. Returns its new files, and {changed file: lines}. A test beside the patches is no part of it."""
    new, changed = [], {}
    for path in files_of(addition):
        source, target = os.path.join(addition, path), os.path.join(tree, path)
        if path.endswith(".patch"):
            with open(source, encoding="utf-8") as file:
                patch = file.read()
            command = ["patch", "-p0", "--forward", "--no-backup-if-mismatch", "--quiet"]
            subprocess.run(command, input=patch, cwd=tree, text=True, check=True)
            changed |= changes_of(patch)
        elif os.path.dirname(path):
            assert not os.path.exists(target), f"{path} is there already: an addition changes files by a patch"
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(source, target)
            new.append(path)
    return new, changed


def excess(kind, new, changed):
    """What an addition touches beyond what its kind may."""
    own, files, lines = KINDS[kind]
    elsewhere = sorted({path for path in new if not path.startswith(tuple(f"{folder}/" for folder in own))} | set(changed))
    out = []
    if len(elsewhere) > files:
        out.append(f"{kind}: {len(elsewhere)} files, not {files}: {', '.join(elsewhere)}")
    if lines is not None and sum(changed.values()) > lines:
        out.append(f"{kind}: {sum(changed.values())} lines outside of its folder, not {lines}")
    return out


class Extensions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # At the same place each time: unity files name those in them by absolute paths, which ccache compares.
        cls.tree = os.path.join(os.path.realpath(BUILD), "tests/style/extensions")
        shutil.rmtree(cls.tree, ignore_errors=True)
        copy_of(ROOT, cls.tree)
        cls.touched = {kind: add(os.path.join(HERE, kind), cls.tree) for kind in KINDS}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.tree)

    def run_in(self, *command, **options):
        begin = time.monotonic()
        done = subprocess.run(command, cwd=self.tree, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
        print(f"{time.monotonic() - begin:.0f} s: {' '.join(command)[:100]}", flush=True)
        self.assertEqual(done.returncode, 0, done.stdout[-8000:])
        return done.stdout

    def test_every_kind_has_an_example(self):
        self.assertEqual(sorted(os.listdir(HERE)), sorted(KINDS))

    def test_each_touches_as_few_files_as_it_may(self):
        for kind, (new, changed) in self.touched.items():
            self.assertTrue(new or changed, kind)
            print(f"{kind}: new {new}, changed {changed}")
            self.assertEqual(excess(kind, new, changed), [])

    def test_one_file_or_line_more_is_found(self):
        for kind, (new, changed) in self.touched.items():
            self.assertNotEqual(excess(kind, [*new, "styles/one_more.cpp"], changed), [], kind)
            self.assertNotEqual(excess(kind, new, {**changed, "meson_options.txt": 1}), [], kind)
        new, changed = self.touched["device"]
        self.assertNotEqual(excess("device", new, {path: 2 for path in changed}), [])

    def test_a_file_that_is_touched_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            tree, addition = os.path.join(folder, "tree"), os.path.join(folder, "addition")
            for path, text in {
                "tree/meson.build": "a\nb\nc\n",
                "tree/styles/x.h": "x\n",
                "addition/x_test.cpp": "",
                "addition/styles/y.h": "",
                "addition/both.patch": "--- meson.build\n+++ meson.build\n@@ -1,3 +1,4 @@\n a\n b\n+B\n c\n"
                                       "--- styles/x.h\n+++ styles/x.h\n@@ -1 +1,2 @@\n-x\n+X\n+Y\n",
            }.items():
                os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
                with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
                    file.write(text)
            self.assertEqual(add(addition, tree), (["styles/y.h"], {"meson.build": 1, "styles/x.h": 2}))

    def test_they_keep_the_rules_of_the_tree(self):
        self.run_in(sys.executable, "tests/style/tree_test.py", self.tree)

    def test_they_build_and_work(self):
        found = [f"tests/style/extensions/{kind}/{path}" for kind in KINDS for path in files_of(os.path.join(HERE, kind))]
        tests = [path for path in found if path.endswith("_test.cpp")]
        self.assertEqual(len(tests), len(KINDS))
        with open(os.path.join(self.tree, "meson.build"), "a", encoding="utf-8") as build:
            build.write(TARGET.format(tests=", ".join(repr(path) for path in tests)))
        environment = dict(os.environ, CXX=" ".join(COMPILER), CCACHE_BASEDIR=self.tree)
        self.run_in("meson", "setup", "build", *SETUP, env=environment)
        self.run_in("ninja", "-C", "build", "extension_tests", env=environment)
        said = self.run_in("build/extension_tests", "--gtest_brief=0")
        self.assertIn("[  PASSED  ]", said)
        print(said[said.rindex("[==========]"):], end="")


if __name__ == "__main__":
    if not shutil.which("patch"):
        print("patch is not installed")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
