#!/usr/bin/env python3
"""What a training saves is the same, byte by byte, whether ranks are threads, processes of an MPI or those of `coshard run`.

usage: checkpoint_launchers_test.py MPI TRAIN COSHARD      MPI: openmpi, mpich; exit code 77: its launcher is not there
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

MPI, TRAIN, COSHARD = sys.argv[1:4]
ENV = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
START = {"openmpi": ["mpirun.openmpi", "--oversubscribe"], "mpich": ["mpirun.mpich"]}[MPI]


def hashes_of(folder):
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                found[os.path.relpath(os.path.join(place, name), folder)] = hashlib.sha256(file.read()).hexdigest()
    return found


class Launchers(unittest.TestCase):
    def test_S2_files_of_every_launcher_are_equal(self):
        with tempfile.TemporaryDirectory(prefix="coshard-launchers-") as folder:
            text = os.path.join(folder, "text")
            with open(text, "w", encoding="utf-8") as file:
                file.write("A text that is long enough for a few blocks of a small model. " * 100)
            program = [TRAIN, "--text", text, "--layers", "1", "--dim", "32", "--heads", "4", "--ffn", "50", "--seq", "30", "--steps", "0",
                       "--eval-blocks", "0", "--sample", "0"]
            saved = {}
            for plan in ("tp", "fsdp"):
                for name, words in (("threads", [*program, "--ranks", "2"]), ("processes", [*START, "-n", "2", *program]),
                                    ("coshard run", [COSHARD, "run", "-n", "2", "--mpi", MPI, "--", *program])):
                    into = os.path.join(folder, f"{plan} {name}")
                    ended = subprocess.run([*words, "--plan", plan, "--save", into], env=ENV, capture_output=True, text=True)
                    self.assertEqual(ended.returncode, 0, ended.stderr)
                    saved[plan, name] = hashes_of(os.path.join(into, "step-0"))
            first = saved["tp", "threads"]
            self.assertGreaterEqual(len(first), 4)
            for which, hashes in saved.items():
                self.assertEqual(hashes, first, which)


if __name__ == "__main__":
    if shutil.which(START[0]) is None:
        print(f"skipped: there is no {START[0]}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
