"""A small tokenizer.json and what `tokenizers` answers, for tests/examples/llama without Python: usage: make_tokenizer.py FOLDER"""
import json
import os
import sys

import torch_python

torch_python.require("tokenizers")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TRAINED_ON = ["the quick brown fox jumps over the lazy dog. ", "The dog isn't lazy; the fox is quick, and quicker than 1234 dogs!\n",
              "int main() {\n  return 0;\n}\n"] * 20
ASKED = ["", " ", "the fox", "The  lazy dog isn't 1234567", "caf\u00e9 cafe\u0301", "\u00a0\u3000\u0085", "<|end|>the<|end|>", "a <mask> b", "dogs<right>  !",
         "word words word", "\U0001f600\u4e16\u754c", "\x00\x1f", "  \n\n x\r\n", "int main() {\n  return 0;\n}\n", "na\u00efve na\u0131\u0308ve"]
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def main(folder):
    made = Tokenizer(models.BPE(ignore_merges=True))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERN), "isolated"),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(TRAINED_ON, trainers.BpeTrainer(vocab_size=330, show_progress=False,
                                                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.add_special_tokens([AddedToken("<|begin|>", normalized=False), AddedToken("<|end|>", normalized=False),
                             AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False)])
    made.add_tokens([AddedToken("word", single_word=True), AddedToken("cafe\u0301", normalized=True)])
    made.post_processor = processors.TemplateProcessing(single="<|begin|> $A <|end|>",
                                                        special_tokens=[(t, made.token_to_id(t)) for t in ("<|begin|>", "<|end|>")])
    made.save(os.path.join(folder, "tokenizer.json"))
    answers = []
    for text in ASKED:
        ids = made.encode(text).ids
        answers.append({"text": text, "ids": ids, "bare": made.encode(text, add_special_tokens=False).ids,
                        "decoded": made.decode(ids, skip_special_tokens=False), "plain": made.decode(ids)})
    with open(os.path.join(folder, "answers.json"), "w", encoding="utf-8") as file:
        json.dump(answers, file, ensure_ascii=True, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
