"""What nvcc made of the attention kernels, read from the objects of the build: no spills, few registers, few loads of
matrices per product. It holds for one compiler; with another, or without code for sm_90, it is skipped.
usage: attention_sass_test.py NVCC OBJECT_FOLDER"""
import glob
import os
import re
import struct
import subprocess
import sys

SKIP = 77
NVCC = "V13.0.88"
SM = 90
CUDA_ELF = 190  # EM_CUDA
# The low 12 bits of an instruction of 16 bytes, as `nvdisasm -hex` of this toolkit shows them.
HMMA, LDSM, LDL, STL = 0x23C, 0x83B, 0x983, 0x387
# Records of .nv.info, as `cuobjdump -elf` names them: EIATTR_REGCOUNT, EIATTR_MIN_STACK_SIZE.
REGCOUNT, MIN_STACK_SIZE, WITH_SIZE = 0x2F, 0x12, 4

# Kernel and kDim: most registers, most LDSM per HMMA. 255 registers let two blocks of 128 threads share a
# multiprocessor. From a 32 x 16 tile of operand a and 16 x 16 tiles of operand b in fragments, 0.25 to 0.5 follow;
# heads over 128 keep 16 rows to a warp.
BOUNDS = {
    "AttentionMmaKernel 64": (255, 0.32), "AttentionMmaKernel 96": (255, 0.38),
    "AttentionMmaKernel 128": (255, 0.38), "AttentionMmaKernel 192": (255, 0.57),
    "AttentionMmaKernel 256": (255, 0.63),
    "AttentionMmaKernel packed 64": (168, 0.57), "AttentionMmaKernel packed 128": (168, 0.57),
    "AttentionMmaKernel packed 256": (255, 0.57),
    "AttentionMmaDqKernel 64": (255, 0.37), "AttentionMmaDqKernel 96": (255, 0.42),
    "AttentionMmaDqKernel 128": (255, 0.42), "AttentionMmaDqKernel 192": (255, 0.67),
    "AttentionMmaDqKernel 256": (255, 0.84),
    "AttentionMmaDkvKernel 64": (255, 0.32), "AttentionMmaDkvKernel 96": (255, 0.38),
    "AttentionMmaDkvKernel 128": (255, 0.38), "AttentionMmaDkvKernel 192": (255, 0.75),
    "AttentionMmaDkvKernel 256": (255, 0.75),
}


def sections(elf):
    table, = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * size) for i in range(count)]
    text = headers[names][4]
    return {string(elf, text + h[0]): elf[h[4]:h[4] + h[5]] for h in headers if h[1] != 8}  # 8: NOBITS


def string(data, at):
    return data[at:data.index(b"\0", at)].decode()


def attributes(of):
    """{(attribute, kernel): value} of .nv.info: records of format, attribute, size or value, payload."""
    info, symbols, names = of[".nv.info"], of[".symtab"], of[".strtab"]
    found, at = {}, 0
    while at < len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if kind != WITH_SIZE:
            continue
        if size == 8:
            symbol, value = struct.unpack_from("<II", info, at)
            name, = struct.unpack_from("<I", symbols, symbol * 24)
            found[attribute, string(names, name)] = value
        at += size
    return found


def kernels(path):
    """(name, registers, stack, {opcode: count}) of the kernels for SM in an object."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while (at := data.find(b"\x7fELF", at)) >= 0:
        elf, at = data[at:], at + 4
        machine, = struct.unpack_from("<H", elf, 18)
        flags, = struct.unpack_from("<I", elf, 48)
        if machine != CUDA_ELF or flags >> 8 & 0xFF != SM:
            continue
        of = sections(elf)
        known = attributes(of)
        for section, code in of.items():
            if not section.startswith(".text."):
                continue
            name, counts = section[6:], {}
            for i in range(0, len(code), 16):
                opcode = struct.unpack_from("<H", code, i)[0] & 0xFFF
                counts[opcode] = counts.get(opcode, 0) + 1
            yield name, known[REGCOUNT, name], known.get((MIN_STACK_SIZE, name), 0), counts


def short(mangled):
    """What of a mangled name tells the kernels apart, and the element type."""
    found = re.search(r"\d(Attention[A-Za-z]*Kernel)I(\w*)", mangled)
    if found is None:
        return mangled, ""
    kernel, parameters = found.groups()
    dtype = {"8BFloat16": "bf16", "7Float16": "f16"}.get(re.sub(r".*?(8BFloat16|7Float16|$).*", r"\1", parameters), "")
    dims = re.findall(r"Li(\d+)E", parameters)
    marks = ["packed"] * ("Lb1E" in parameters) + ["ranges"] * ("KeyRanges" in parameters)
    return " ".join([kernel] + marks + dims[:1]), dtype


def main():
    nvcc, folder = sys.argv[1:]
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    if NVCC not in version:
        print(f"skipped: the bounds are for nvcc {NVCC}, not for\n{version}")
        return SKIP
    wrong, seen = [], set()
    for path in sorted(glob.glob(os.path.join(folder, "attention*.o"))):
        for name, registers, stack, counts in kernels(path):
            what, dtype = short(name)
            hmma, ldsm = counts.get(HMMA, 0), counts.get(LDSM, 0)
            spills = counts.get(LDL, 0) + counts.get(STL, 0)
            print(f"{what:32} {dtype:9} {registers:4} registers {stack:4} B stack {spills:3} LDL and STL {hmma:4} HMMA "
                  f"{ldsm:4} LDSM" + (f" {ldsm / hmma:.3f}" if hmma else ""))
            if spills or stack:
                wrong.append(f"{what} of {dtype} spills: {spills} LDL and STL, {stack} bytes of stack")
            if hmma == 0:
                continue
            seen.add(what)
            most, loads = BOUNDS.get(what, (0, 0))
            if registers > most or ldsm > loads * hmma:
                wrong.append(f"{what} of {dtype}: {registers} registers and {ldsm / hmma:.3f} LDSM per HMMA, "
                             f"{most} and {loads} are allowed")
    if not seen and not wrong:
        print(f"skipped: no code for sm_{SM} in {folder}")
        return SKIP
    wrong += [f"{what} is not there" for what in BOUNDS if what not in seen]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
