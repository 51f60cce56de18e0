"""Each source of the library has a test of its own name: runtime/coro/task.cpp has tests/runtime/coro/task_test.cpp. Sources that
have none yet are listed in unmirrored.txt, which only shrinks. usage: mirror_test.py SOURCE_ROOT [--count]"""
import os
import sys
import tempfile
import unittest

from tree import LAYERS, sources

ALLOWED = "tests/style/unmirrored.txt"


def mirror_of(source):
    return f"tests/{os.path.splitext(source)[0]}_test.cpp"


def unmirrored(root):
    """All sources, and those of them without a test of their name. Headers count where no source has their name, and only templates
    and inline functions are in them; those are tested with what uses them, so only .cpp and .cu are asked for."""
    found = sources(root, LAYERS + ["profiling"], (".cpp", ".cu"))
    return found, [path for path in found if not os.path.exists(os.path.join(root, mirror_of(path)))]


def allowed(root):
    with open(os.path.join(root, ALLOWED), encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


def problems(root):
    found, missing = unmirrored(root)
    listed = allowed(root)
    out = [f"{path} has no {mirror_of(path)}" for path in missing if path not in listed]
    out += [f"{path} is gone: take it out of {ALLOWED}" for path in listed if path not in found]
    out += [f"{path} has its test: take it out of {ALLOWED}" for path in listed if path in found and path not in missing]
    out += [f"{ALLOWED} is not sorted, or lists a source twice"] * (listed != sorted(set(listed)))
    return out


class Mirror(unittest.TestCase):
    def tree(self, folder, *paths, listed=()):
        for path in paths:
            os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
            with open(os.path.join(folder, path), "w", encoding="utf-8"):
                pass
        os.makedirs(os.path.join(folder, "tests/style"), exist_ok=True)
        with open(os.path.join(folder, ALLOWED), "w", encoding="utf-8") as file:
            file.write("# why\n" + "".join(path + "\n" for path in listed))
        return problems(folder)

    def test_a_source_needs_a_test_of_its_name_or_a_line_in_the_list(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.tree(folder, "runtime/a/x.cpp", "tests/runtime/a/x_test.cpp", "runtime/a/x.h"), [])
            self.assertEqual(self.tree(folder, "kernels/cuda/y.cu"), ["kernels/cuda/y.cu has no tests/kernels/cuda/y_test.cpp"])
            self.assertEqual(self.tree(folder, listed=["kernels/cuda/y.cu"]), [])

    def test_the_list_only_shrinks(self):
        with tempfile.TemporaryDirectory() as folder:
            found = self.tree(folder, "styles/x.cpp", "tests/styles/x_test.cpp", listed=["styles/gone.cpp", "styles/x.cpp"])
            self.assertEqual([line.split(":")[0] for line in found], ["styles/gone.cpp is gone", "styles/x.cpp has its test"])
            self.assertEqual(len(self.tree(folder, "styles/z.cpp", "styles/y.cpp", listed=["styles/z.cpp", "styles/y.cpp"])), 1)

    def test_of_this_tree_all_others_have_theirs(self):
        self.assertFalse(found := problems(ROOT), "\n" + "\n".join(found))


if __name__ == "__main__":
    ROOT = sys.argv.pop(1)
    if "--count" in sys.argv:
        found, missing = unmirrored(ROOT)
        print(f"{len(found) - len(missing)} of {len(found)} sources have a test of their name")
        sys.exit(0)
    unittest.main(argv=sys.argv)
