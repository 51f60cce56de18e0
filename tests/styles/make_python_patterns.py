"""Writes tests/styles/python_patterns.txt: what Python's re.fullmatch says of drawn patterns. Run by hand (made by Python 3.11). A line is
a pattern, its kind, and texts, separated by tabs: "wrong", where re.compile fails, or "right", where a text has "+" before it if it matches
and "-" if it does not. Spaces are written as themselves; no pattern or text has a tab."""
import os
import random
import re
import warnings

warnings.simplefilter("ignore")
draw = random.Random(7)
ATOMS = ["a", "b", ".", r"\.", r"\d", r"\w", r"\W", r"\D", r"\s", r"\S", "[ab]", "[^a]", r"[\d_]", r"[a-c.]", "q_proj", "layers", r"\bx", r"\Bx", "-",
         r"\-", "<", r"\<", "'", "_", "7", r"\/", r"[\w.]", "[]a]", r"[\]a]", r"\A", r"\Z", r"\x41", "$", "^", "{", "}", r"\{", "[[a]", r"(?i)"]
TEXTS = ["", "a", "b", "ab", "aab", "abab", "a.b", "7", "a7_", "x", "xx", "-", "<", "'", "q_proj", "m.l.0.v", "layers.7",
         "a b", "A", "]", "{", "aaa", "aaaa", "/", "a\n"]


def pattern(depth):
    parts = []
    for _ in range(draw.randint(1, 3)):
        part = draw.choice(ATOMS)
        if depth and draw.random() < 0.4:
            part = draw.choice(["({})", "(?:{})", "(?={})", "(?P<n>{})", "({}"][:4 if draw.random() < 0.9 else 5]).format(pattern(depth - 1))
        if draw.random() < 0.4:
            part += draw.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}", "{,2}", "*?", "+?", "??", "{2}?", "*+", "**", "{x}", "{3,1}"])
        parts.append(part)
    return draw.choice(["", "", "|"]).join(parts)


def line(text):
    try:
        found = re.compile(text)
    except (re.error, OverflowError):
        return f"{text}\twrong"
    shown = [("+" if found.fullmatch(t) else "-") + t for t in TEXTS if "\n" not in t]
    return "\t".join([text, "right"] + shown)


chosen = [r".*\.(q|v)_proj", r"model\.layers\.\d+\.self_attn\.(q_proj|v_proj)", r"(.*)\.layers\.[0-3]\..*", "a|ab", "(a|ab)(c|bcd)?", "(a*)*b", ""]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "python_patterns.txt"), "w", encoding="ascii") as file:
    for text in chosen + [pattern(2) for _ in range(500)]:
        file.write(line(text) + "\n")
