"""Tokenizer of examples/llama beside `tokenizers`: ids and texts. Vocabularies are trained here, on the files of this repository.
usage: tokenizer_test.py LLAMA_TEXT ROOT      exit code 77: there is no Python with tokenizers"""
import functools
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata
import unittest

import torch_python

torch_python.require("tokenizers")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA_TEXT, ROOT = sys.argv[1:]
POINTS = 100_000  # random code points of each tokenizer
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
# Blocks that Unicode 13, which each library here knows at least, has added last.
ASSIGNED = [c for c in range(0x20000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


NFC = normalizers.NFC()


def is_known_to_nfc(text):
    """`tokenizers` normalizes by tables of Unicode 9: without the marks and compositions that came later."""
    around = ["\u0334", "\u0323", "\u0308", "\u0345"]
    parts = unicodedata.normalize("NFD", text)
    return all(NFC.normalize_str(t) == unicodedata.normalize("NFC", t) for x in around for t in (text + x, "a" + x + text, parts, "a" + text + x))


def texts_of_repository():
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True).stdout.decode().split("\0")
    texts = []
    for name in sorted(filter(None, files)):
        path = os.path.join(ROOT, name)
        if name.endswith((".cpp", ".h", ".py", ".md", ".build")) and os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                texts.append(file.read())
    return texts


TEXTS = texts_of_repository()


def random_texts(seed, special, points=ASSIGNED):
    """Runs of one script, of all, and of what the expressions tell apart, with tokens among them."""
    draw = random.Random(seed)
    pieces = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u0085", "\u180e", "\u3000", "'s", "'S", "'\u017f", "'LL", "1", "\u0661", "\u00bd", "a", "\u00e9",
              "e\u0301", "\u1100\u1161", "\u0344", "_", "-", "\u200d", "\U0001f600", "\x00", "\x1f", "don't", "WORD"] + special
    texts, left = [], POINTS
    while left > 0:
        size = draw.choice([1, 3, 10, 100, 1000])
        start = draw.randrange(len(points))
        kind = draw.randrange(3)
        if kind == 0:
            text = "".join(map(chr, draw.choices(points, k=size)))
        elif kind == 1:
            text = "".join(map(chr, draw.choices(points[start:start + 200], k=size)))
        else:
            text = "".join(draw.choices(pieces, k=size))
        texts.append(text)
        left -= len(text)
    return texts + ["", " ", "\n", "".join(map(chr, points))]


def packed(texts):
    raw = [text.encode() for text in texts]
    return b"".join(struct.pack("<Q", len(r)) + r for r in raw)


def unpacked(data, count):
    at, found = 0, []
    for _ in range(count):
        n, = struct.unpack_from("<Q", data, at)
        ids = struct.unpack_from(f"<{n}q", data, at + 8)
        at += 8 + 8 * n
        size, = struct.unpack_from("<Q", data, at)
        found.append((list(ids), data[at + 8:at + 8 + size].decode()))
        at += 8 + size
    assert at == len(data)
    return found


@functools.cache
def trained():
    """Vocabulary and merges of 3,000 tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(TEXTS[::10], trainers.BpeTrainer(
        vocab_size=3000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(made.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def bpe(pre_tokenizer, normalizer=None, missing=(), **model):
    """A tokenizer of the trained tokens but those of the characters `missing`."""
    vocab, merges = trained()
    kept = [token for token in vocab if not set(token) & set(missing)]
    merges = [pair for pair in merges if not set("".join(pair)) & set(missing)]
    made = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(kept)}, merges=merges, **model))
    made.pre_tokenizer = pre_tokenizer
    made.decoder = decoders.ByteLevel()
    if normalizer:
        made.normalizer = normalizer
    return made


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
sequence = pre_tokenizers.Sequence


MISSING = "\u0104\u0106\u00f1"  # the characters of three bytes


def smollm():
    return bpe(sequence([pre_tokenizers.Digits(individual_digits=True), GPT2]), missing=MISSING)


def llama3():
    made = bpe(sequence([split(LLAMA3), BYTES]), ignore_merges=True)
    made.add_special_tokens([AddedToken(t, normalized=False) for t in ("<|begin_of_text|>", "<|eot_id|>")])
    bos = ("<|begin_of_text|>", made.token_to_id("<|begin_of_text|>"))
    made.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])])
    return made


def qwen2():
    return bpe(sequence([split(QWEN2), BYTES]), normalizers.NFC())


def with_tokens(made):
    made.add_special_tokens([AddedToken("<|im_start|>", normalized=False), AddedToken("<mask>", lstrip=True, normalized=False),
                             AddedToken("<right>", rstrip=True, normalized=False)])
    made.add_tokens([AddedToken("don't", single_word=True, normalized=False), AddedToken("WORD", single_word=True),
                     AddedToken("WORDWORD"), AddedToken("e\u0301e", normalized=True), AddedToken("\u00e9\u00e9\u00e9", normalized=False),
                     AddedToken("  ", normalized=False), AddedToken(" \t ", lstrip=True, rstrip=True)])
    return made


class Ids(unittest.TestCase):
    def compare(self, made, texts, round_trip=True, bare=False):
        with tempfile.TemporaryDirectory() as folder:
            made.save(os.path.join(folder, "tokenizer.json"))
            with open(source := os.path.join(folder, "in"), "wb") as file:
                file.write(packed(texts))
            out = os.path.join(folder, "out")
            subprocess.run([LLAMA_TEXT, "encode", folder, source, out] + ["bare"] * bare, check=True)
            with open(out, "rb") as file:
                ours = unpacked(file.read(), len(texts))
        theirs = made.encode_batch(texts, add_special_tokens=not bare)
        decoded = made.decode_batch([t.ids for t in theirs], skip_special_tokens=False)
        for text, (ids, back), theirs_of, theirs_back in zip(texts, ours, theirs, decoded):
            if ids != theirs_of.ids:
                at = next((i for i, (a, b) in enumerate(zip(ids, theirs_of.ids)) if a != b), min(len(ids), len(theirs_of.ids)))
                self.fail(f"{text[:200]!r}: from {at}: {ids[at:at + 5]}, tokenizers {theirs_of.ids[at:at + 5]}, {theirs_of.tokens[at:at + 5]}")
            self.assertEqual(back, theirs_back, repr(text[:200]))
            if round_trip:
                self.assertEqual(back, text)

    def both(self, made, special=(), round_trip=True, bare=False):
        self.compare(made, TEXTS[::4], round_trip, bare)
        points = [c for c in ASSIGNED if is_known_to_nfc(chr(c))] if made.normalizer else ASSIGNED
        self.compare(made, random_texts(1, list(special), points), round_trip, bare)

    def test_smollm(self):
        self.both(smollm(), round_trip=False)  # its alphabet is not whole
        self.compare(smollm(), TEXTS)

    def test_gpt2(self):
        self.both(bpe(GPT2))
        self.both(bpe(pre_tokenizers.ByteLevel(add_prefix_space=True)), round_trip=False)

    def test_llama3(self):
        self.both(llama3(), ["<|eot_id|>"], bare=True)
        self.both(llama3(), ["<|eot_id|>"], round_trip=False)

    def test_qwen2(self):
        self.both(qwen2(), round_trip=False)

    def test_added_tokens_are_found_as_their_flags_say(self):
        tokens = ["<|im_start|>", "<mask>", "<right>", "WORDWORD", "e\u0301e", "\u00e9\u00e9\u00e9", " \t "]
        for made in smollm(), qwen2(), bpe(GPT2):
            self.both(with_tokens(made), tokens, round_trip=False)

    def test_split_behaviors(self):
        for behavior in "removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous":
            for invert in False, True:
                for pattern in r"\p{N}+|\s", r"[^\s\d]*", r"(?<=a)\S|(?!\.)\p{P}":
                    with self.subTest(behavior, invert=invert, pattern=pattern):
                        made = bpe(sequence([split(pattern, behavior, invert), BYTES]))
                        self.compare(made, TEXTS[:20] + random_texts(2, [])[:200], round_trip=False)
                made = bpe(sequence([pre_tokenizers.Split("a", behavior, invert), pre_tokenizers.Digits(False), GPT2]))
                self.compare(made, TEXTS[:50], round_trip=False)

    def test_bytes_without_a_token(self):
        for model in ({"unk_token": "<unk>", "fuse_unk": True}, {"unk_token": "<unk>"}, {}):
            made = Tokenizer(models.BPE(vocab={"<unk>": 0, "a": 1, "b": 2, "ab": 3, "\u0120": 4}, merges=[("a", "b")], **model))
            made.pre_tokenizer, made.decoder = GPT2, decoders.ByteLevel()
            self.compare(made, ["abcab", " xyz ab", "ccc", "", "aabb"] + random_texts(3, ["abab", "b"]), round_trip=False)

    def test_smollm2_of_a_folder(self):
        folder = os.environ.get("COSHARD_LLAMA_FOLDER")
        if not folder:
            self.skipTest("COSHARD_LLAMA_FOLDER names no folder of a model")
        made = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.compare(made, TEXTS)
        self.compare(made, random_texts(4, ["<|im_start|>", "<|im_end|>"]), round_trip=False)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
