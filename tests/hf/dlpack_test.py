"""Tensors exchanged with NumPy and torch by DLPack, without a copy.
usage: dlpack_test.py MODULE      exit code 77: no numpy in this Python or $TORCH_PYTHON"""
import ctypes
import gc
import importlib.util
import sys

import torch_python

torch_python.require("numpy")
import numpy

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch

NEW, USED = b"dltensor_versioned", b"used_dltensor_versioned"
TYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "bool")
capsule_new = ctypes.pythonapi.PyCapsule_New
capsule_new.restype, capsule_new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
capsule_rename = ctypes.pythonapi.PyCapsule_SetName
capsule_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Given:
    """What a consumer takes: as an array of the array API."""

    def __init__(self, pointer):
        self.pointer = pointer

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        assert max_version is not None and max_version[0] >= 1, max_version
        return capsule_new(self.pointer, NEW, None)

    def __dlpack_device__(self):
        return (1, 0)


def pointer_of(array):
    """The tensor of a producer, owned by whoever gets it."""
    capsule = array.__dlpack__(max_version=(1, 1))
    pointer = capsule_pointer(capsule, NEW)
    capsule_rename(capsule, USED)
    return pointer


def check(module, library, name, read_only=False, writable=True):
    seen = {}

    def python(pointer):
        try:
            taken = library.from_dlpack(Given(pointer))
            seen["type"], seen["shape"] = str(taken.dtype).replace("torch.", ""), tuple(taken.shape)
            seen["values"] = [[float(v) for v in row] for row in taken.tolist()]
            seen["writable"] = getattr(taken, "flags", None) is None or taken.flags.writeable
            if writable and not read_only and name != "bool":
                taken += 10
            made = library.arange(6, dtype=getattr(library, "float64")).reshape(2, 3).T
            if library is numpy:
                made.flags.writeable = writable
            seen["made"] = made
            del taken
            gc.collect()
            return pointer_of(made)
        except Exception as error:  # ctypes would print it and go on
            seen["error"] = error
            raise

    total, first = ctypes.c_double(), (ctypes.c_double * 6)()
    callback = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(python)
    code = module.exchange(TYPES.index(name), int(read_only), callback, ctypes.byref(total), first)
    assert code == 0 and "error" not in seen, (library.__name__, name, seen)
    want = [[0, 3], [1, 4], [2, 5]] if name != "bool" else [[0, 1], [1, 0], [0, 1]]
    assert seen["type"] == name and seen["shape"] == (3, 2) and seen["values"] == want, seen
    assert seen["writable"] is (not read_only), seen
    assert total.value == 15
    written = writable and not read_only and name != "bool"
    values = [0, 1, 2, 3, 4, 5] if name != "bool" else [0, 1, 0, 1, 0, 1]
    assert list(first) == [v + (10 if written else 0) for v in values], list(first)
    back = seen["made"].T.reshape(6).tolist()
    assert back == [v + (1 if writable else 0) for v in range(6)], back


def main(path):
    module = ctypes.CDLL(path)
    libraries = [numpy] + ([torch] if HAS_TORCH else [])
    for library in libraries:
        for name in TYPES:
            if library is not numpy or name != "bfloat16":
                check(module, library, name)
    check(module, numpy, "float32", read_only=True)
    check(module, numpy, "float32", writable=False)
    print(f"exchanged with {' and '.join(library.__name__ for library in libraries)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
