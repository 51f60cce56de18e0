#!/usr/bin/env python3
"""Prints the score of a model beside those of compressors. usage: demo_score.py FILE, which `train --json` wrote"""
import json
import sys


def lines_of(figures):
    """What there is to say of the figures; nothing if nothing was scored."""
    score, packed = figures["bits_per_byte"], figures["compressors"]
    if score is None:
        return []
    lines = [f"{name:<8} " + ("not installed" if bits is None else f"{bits:.3f} on the whole text") for name, bits in packed.items()]
    best, bits = min(((name, bits) for name, bits in packed.items() if bits is not None), key=lambda one: one[1], default=(None, None))
    if best is None:
        return lines
    won = score < bits
    return lines + [
        f"{'The model' if won else best} has fewer bits: {min(score, bits):.3f} against {max(score, bits):.3f} of {best if won else 'the model'}. "
        "They do not measure the same: the model",
        f"predicts bytes that it was not trained on, and its {figures['parameters']} parameters are not counted;",
        "a compressor stores the whole text, and its figure counts all that it takes to restore it.",
    ]


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(lines_of(json.load(file))))
