"""Writes tests/hf/files with safetensors, torch and transformers, and expected.txt, which says what is in them. Run by hand:
$TORCH_PYTHON tests/hf/make_files.py (made by safetensors 0.8, torch 2.15, transformers 5.24). A line of expected.txt: model, tensor,
dtype, sizes, FNV-1a of the tensor's bytes as torch has them."""
import json
import os
import shutil
import struct
import sys

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files")
DTYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int32: "I32", torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.complex64: "C64",
}
SHAPES = {"scalar": [], "empty": [0], "empty_of_3": [3, 0, 2], "row": [7], "matrix": [5, 3], "cube": [3, 4, 5],
          "deep": [2, 1, 2, 1, 3, 1, 2, 2]}


def drawn(shape, dtype, generator):
    """Any bits, NaNs and infinities among them; of bool 0 and 1."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    size = torch.empty([], dtype=dtype).element_size()
    count = 1
    for n in shape:
        count *= n
    return torch.randint(0, 256, [count * size], generator=generator, dtype=torch.uint8).view(dtype).reshape(shape)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & (1 << 64) - 1
    return f"{value:016x}"


def unpadded(path, tensors, length):
    """A file whose header has this length mod 16, in an order of its own. safetensors pads to 8, and reads all."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(bits(tensor))]}
        data += bits(tensor)
    header["__metadata__"] = {"x": ""}
    missing = length - len(json.dumps(header, separators=(",", ":")))
    header["__metadata__"]["x"] = "." * (missing % 16)
    text = json.dumps(header, separators=(",", ":"))
    assert len(text) % 16 == length
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text.encode() + data)


def llama(layers, dtype):
    torch.manual_seed(layers)
    config = transformers.LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=layers,
                                      num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)
    return transformers.LlamaForCausalLM(config).to(dtype)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    generator = torch.Generator().manual_seed(5)
    models = {"types.safetensors": {f"{DTYPES[dtype]}.{name}": drawn(shape, dtype, generator)
                                    for dtype in DTYPES for name, shape in SHAPES.items()}}
    save_file(models["types.safetensors"], os.path.join(FOLDER, "types.safetensors"), metadata={"format": "pt", "ä": "\n"})
    for length in range(16):
        # Odd numbers of bytes before wider elements.
        tensors = {"flag": drawn([3], torch.bool, generator), "wide": drawn([5, 3], torch.float64, generator),
                   "half": drawn([3, 1], torch.bfloat16, generator), "one": drawn([], torch.bool, generator),
                   "ids": drawn([2, 3], torch.int64, generator), "f": drawn([4, 3], torch.float32, generator)}
        models[f"header{length}.safetensors"] = tensors
        unpadded(os.path.join(FOLDER, f"header{length}.safetensors"), tensors, length)
    for name, model, options in [("whole", llama(1, torch.bfloat16), {}), ("sharded", llama(2, torch.float32), {"max_shard_size": "50KB"})]:
        model.save_pretrained(os.path.join(FOLDER, name), **options)
        models[name] = {key: value for key, value in model.state_dict().items() if key != "lm_head.weight"}
        for extra in os.listdir(os.path.join(FOLDER, name)):
            if not extra.startswith("model"):
                os.remove(os.path.join(FOLDER, name, extra))
    lines = []
    for name, tensors in models.items():
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(FOLDER, name), "pt") as file:
                assert {key: bits(file.get_tensor(key)) for key in file.keys()} == {key: bits(value) for key, value in tensors.items()}
        for key, tensor in sorted(tensors.items()):
            sizes = ",".join(map(str, tensor.shape)) or "-"
            lines.append(f"{name} {key} {DTYPES[tensor.dtype]} {sizes} {fnv(bits(tensor))}")
    with open(os.path.join(FOLDER, "expected.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    total = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(FOLDER) for name in names)
    print(len(lines), "tensors", total, "bytes")


if __name__ == "__main__":
    sys.exit(main())
