"""Writes tests/hf/attacks: small hostile files, and attacks.txt, which says of each what its refusal names and whether safetensors
refuses it too. Run by hand: $TORCH_PYTHON tests/hf/make_attacks.py (the verdicts are those of safetensors 0.8)."""
import os
import shutil
import struct

from safetensors import safe_open

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "attacks")


def entry(dtype="U8", shape="[1]", places="[0,1]", more=""):
    return '{%s"dtype":"%s","shape":%s,"data_offsets":%s}' % (more, dtype, shape, places)


def one(*args, **more):
    return '{"a":%s}' % entry(*args, **more)


def two(first, second):
    return '{"a":%s,"b":%s}' % (entry("U8", "[2]", first), entry("U8", "[2]", second))


# name: (header, data, what the refusal names)
ATTACKS = {
    "no-header": ("", b"", "'{'"), "array": ("[]", b"", "'{'"), "leading-space": (" {}", b"", "'{'"), "bom": ("\ufeff{}", b"", "'{'"),
    "nul-after": ("{}\0", b"", "byte 2"), "text-after": ("{}{}", b"", "byte 2"), "open": ('{"a":', b"", "byte 5"),
    "comment": ("{/**/}", b"", "byte 1"), "trailing-comma": (one()[:-1] + ",}", b"1", "byte"),
    "not-utf8": (b'{"\xff":1}', b"", "byte 2"), "overlong-utf8": (b'{"\xc0\xaf":1}', b"", "byte 2"),
    "half-surrogate": ('{"\\ud800":1}', b"", "byte"), "nan": ('{"a":NaN}', b"", "byte 5"),
    "too-deep": (one(more='"x":' + "[" * 127 + "]" * 127 + ","), b"1", "levels"), "huge-number": (one(more='"x":1e400,'), b"1", "out of range"),
    "same-name": ('{"a":%s,"a":%s}' % (entry(), entry()), b"1", "'a'"),
    "same-name-escaped": ('{"a":%s,"\\u0061":%s}' % (entry(), entry(places="[1,2]")), b"12", "'a'"),
    "same-key": (one(more='"dtype":"U8",'), b"1", "'a'"), "null-tensor": ('{"a":null}', b"", "'a'"), "list-tensor": ('{"a":[3]}', b"", "'a'"),
    "no-dtype": ('{"a":{"shape":[1],"data_offsets":[0,1]}}', b"1", "'a'"),
    "no-shape": ('{"a":{"dtype":"U8","data_offsets":[0,1]}}', b"1", "'a'"),
    "no-places": ('{"a":{"dtype":"U8","shape":[1]}}', b"1", "'a'"), "dtype-unknown": (one("F31"), b"1", "'F31'"),
    "dtype-lower-case": (one("u8"), b"1", "'u8'"), "shape-fraction": (one("F32", "[2.9]", "[0,8]"), b"12345678", "2.9"),
    "shape-negative": (one("U8", "[-1]"), b"1", "-1"), "shape-text": (one("U8", '["1"]'), b"1", "'a'"),
    "shape-too-large": (one("U8", "[18446744073709551616]"), b"1", "18446744073709551616"),
    "shape-overflow": (one("F32", "[4294967296,4294967296]", "[0,0]"), b"", "'a'"),
    "shape-overflow-then-0": (one("F32", "[4611686018427387904,4,0]", "[0,0]"), b"", "'a'"),
    "bits-overflow": (one("F64", "[2305843009213693952]", "[0,0]"), b"", "'a'"), "half-byte": (one("F4", "[3]", "[0,2]"), b"12", "'a'"),
    "one-place": (one(places="[1]"), b"1", "'a'"), "three-places": (one(places="[0,1,1]"), b"1", "'a'"),
    "places-backwards": (one(places="[1,0]"), b"1", "'a'"), "places-too-small": (one("F32", "[2]", "[0,7]"), b"1234567", "'a'"),
    "gap-before": (one(places="[1,2]"), b"12", "'a'"), "gap-between": (two("[0,2]", "[3,5]"), b"12345", "'b'"),
    "alias": (two("[0,2]", "[0,2]"), b"12", "'b'"), "overlap": (two("[0,2]", "[1,3]"), b"123", "'b'"),
    "data-too-short": (one("U8", "[9]", "[0,9]"), b"12345678", "'a'"), "data-too-long": (one(), b"12", "2 follow"),
    "metadata-number": ('{"__metadata__":{"a":1}}', b"", "__metadata__"), "metadata-list": ('{"__metadata__":[1]}', b"", "__metadata__"),
    "metadata-twice": ('{"__metadata__":{},"__metadata__":{}}', b"", "__metadata__"),
}
RAW = {
    "empty-file": (b"", "0 bytes"), "seven-bytes": (b"1234567", "7 bytes"), "length-beyond-file": (struct.pack("<Q", 100) + b"{}", "100"),
    "length-beyond-limit": (struct.pack("<Q", 100_000_001) + b"{}", "100000001"), "length-2-64": (b"\xff" * 8 + b"{}", "18446744073709551615"),
}


def refused(path):
    try:
        with safe_open(path, "np") as file:
            file.keys()
        return False
    except Exception:  # SafetensorError, and others of the binding
        return True


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    files = dict(RAW)
    for name, (header, data, told) in ATTACKS.items():
        header = header if isinstance(header, bytes) else header.encode()
        files[name] = (struct.pack("<Q", len(header)) + header + data, told)
    lines = []
    for name, (content, told) in files.items():
        path = os.path.join(FOLDER, name + ".safetensors")
        with open(path, "wb") as file:
            file.write(content)
        lines.append(f"{name} {'refused' if refused(path) else 'taken'} {told}")
    with open(os.path.join(FOLDER, "attacks.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print(len(lines), "files, of which safetensors takes", [line.split()[0] for line in lines if line.split()[1] == "taken"])


if __name__ == "__main__":
    main()
