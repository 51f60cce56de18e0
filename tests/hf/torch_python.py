"""Tests that need packages of Python which no Debian package has: they run in the Python that $TORCH_PYTHON names."""
import importlib.util
import os
import sys

SKIPPED = 77


def require(*packages):
    """Goes on where all packages are: here, or in $TORCH_PYTHON. Elsewhere says what is missing, and ends with 77."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if not missing:
        return
    wanted = os.environ.get("TORCH_PYTHON")
    if wanted and os.environ.get("COSHARD_IN_TORCH_PYTHON") is None:
        os.execve(wanted, [wanted] + sys.argv, os.environ | {"COSHARD_IN_TORCH_PYTHON": "1"})
    where = f"TORCH_PYTHON, {wanted}, lacks" if wanted else "set TORCH_PYTHON to a Python that has"
    print(f"skipped: {where} {', '.join(missing)}")
    sys.exit(SKIPPED)
