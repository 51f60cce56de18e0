"""clang-format has nothing to change. Skipped where it is not installed. usage: format_test.py SOURCE_ROOT"""
import shutil
import subprocess
import sys

from tree import sources

SKIP = 77


def main():
    tool = shutil.which("clang-format-14")
    if not tool:
        print("clang-format-14 is not installed")
        return SKIP
    root = sys.argv[1]
    return subprocess.run([tool, "--dry-run", "-Werror", *sources(root)], cwd=root).returncode


if __name__ == "__main__":
    sys.exit(main())
