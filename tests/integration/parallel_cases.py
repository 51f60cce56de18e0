"""Runs the cases of a unittest program at the same time, each in a process of its own, for programs whose cases mostly wait:

    unittest.main(testRunner=parallel_cases.Runner(at_once))

A case has a TMPDIR of its own: daemons of Open MPI that make and remove one folder at the same time may fail.
"""
import contextlib
import os
import signal
import sys
import tempfile
import time
import unittest

SKIPPED = 77


def starts_first(case):
    """Decorates a case that takes longer than the others."""
    case.starts_first = True
    return case


def cases_of(suite):
    if isinstance(suite, unittest.TestCase):
        return [suite]
    return [case for part in suite for case in cases_of(part)]


def is_first(case):
    return hasattr(getattr(case, getattr(case, "_testMethodName", ""), None), "starts_first")


def end(*_):
    """On SIGTERM, of a test that takes too long: each case still removes what it has made, though it is told twice."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


class Runner:
    def __init__(self, at_once):
        self.at_once = at_once
        self.running = {}  # by process id: (case, what it prints, when it began)
        self.result = unittest.TestResult()

    def run(self, suite):
        waiting = sorted(cases_of(suite), key=lambda case: not is_first(case))
        begin = time.monotonic()
        signal.signal(signal.SIGTERM, end)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                while waiting or self.running:
                    if waiting and len(self.running) < self.at_once:
                        self.start(waiting.pop(0), folder)
                    else:
                        self.wait_for_one()
            finally:
                # One may have been waited for just as the signal came.
                for pid in self.running:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
                with contextlib.suppress(ChildProcessError):
                    while self.running:
                        self.wait_for_one()
        failed = [str(case) for case, _ in self.result.failures]
        print(f"{self.result.testsRun} cases in {time.monotonic() - begin:.1f} s, {self.at_once} at a time; {len(failed)} failed: {', '.join(failed)}")
        return self.result

    def start(self, case, folder):
        printed = tempfile.TemporaryFile("w+", errors="replace")
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until the new process is known
        pid = os.fork()
        if pid == 0:
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
                for stream in (1, 2):
                    os.dup2(printed.fileno(), stream)
                os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(dir=folder)
                code = run_alone(case)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code if "code" in locals() else 1)
        self.running[pid] = case, printed, time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def wait_for_one(self):
        pid, status, used = os.wait4(-1, 0)
        if pid not in self.running:
            return
        case, printed, begin = self.running.pop(pid)
        skipped = os.waitstatus_to_exitcode(status) == SKIPPED
        said = "skip" if skipped else "failed" if status else "ok"
        self.result.testsRun += 1
        if skipped:
            self.result.skipped.append((case, ""))
        elif status:
            self.result.failures.append((case, ""))
        print(f"{said:6} {time.monotonic() - begin:6.1f} s, {used.ru_utime + used.ru_stime:5.1f} s of CPU  {case.id()}")
        printed.seek(0)
        print(printed.read(), end="", flush=True)
        printed.close()


def run_alone(case):
    """Prints why it failed or was skipped; the exit code."""
    result = unittest.TestResult()
    unittest.TestSuite([case]).run(result)
    for _, why in result.failures + result.errors + result.skipped:
        print(why)
    return 1 if not result.wasSuccessful() else SKIPPED if result.skipped else 0
