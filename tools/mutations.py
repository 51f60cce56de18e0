"""What tools/mutate changes in a line of C++, and how a program chooses at run time whether it is changed."""
import collections
import re

SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/",
         "/": "*", "%": "/", "+=": "-=", "-=": "+=", "*=": "/=", "|=": "&=", "&=": "|=", "<<": ">>", ">>": "<<"}
OPERATOR = re.compile(r"(?<= )(" + "|".join(re.escape(o) for o in sorted(SWAPS, key=len, reverse=True)) + r")(?= )")
STEP = re.compile(r"\+\+|--")
NUMBER = re.compile(r"(?<![\w.'\"])(\d+)(?![\w.'])")
TRUTH = re.compile(r"\b(true|false)\b")
CONDITION = re.compile(r"^(\s*(?:\} else )?(?:if|while) \()([^;]*)(\)\s*(?:\{|[^()]*;)?\s*)$")
STATEMENT = re.compile(r"^(\s+)(?!return\b|co_return\b|using\b|case\b|default\b|throw\b|delete\b|goto\b|else\b|break\b|continue\b)"
                       r"((?:\+\+|--)[\w.>\[\]-]+|\*?[\w:]+(?:(?:->|\.|::)\w+|\[[^\]]*\]|\([^()]*\))*\s*(?:\(.*\)|[-+*/|&^%]?= .*|\+\+|--));\s*$")
RETURN = re.compile(r"^(\s+)(return|co_return) (?!\{\};)(.+);\s*$")
JUMP = re.compile(r"^(\s+)((?:if|for) \(.*\) )?(return|break|continue);\s*$")
LITERAL = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\])*"|//.*$|(?<!\w)\'(?:\\.|[^\'\\])+\'', re.M)
# What an expression begins after, other than an opening bracket; the head of a statement that has brackets.
BEGIN = re.compile(r"(?:\b(?:return|co_return|co_yield|throw|else|do)|[(\[{,;?]|(?<![=!<>])=|(?<!:):|\}\s*\n)\s*$")
HEAD = re.compile(r"\b(?:if|for|while|switch)\s*$")

# kind: how it is written beside what it changes, which is line[begin:end].
Mutation = collections.namedtuple("Mutation", "path line before after kind begin end")


def blanked(text, comments_alone=False):
    """The text with comments as spaces, and texts as quotation marks, so that nothing in them is changed."""
    def instead(match):
        comment = match.group(0).startswith("//")
        return match.group(0) if comments_alone and not comment else re.sub(r"[^\n]", " " if comment else '"', match.group(0))

    return LITERAL.sub(instead, text)


def changes_of(line):
    return [after for after, *_ in sites_of(line, blanked(line))]


def sites_of(line, code):
    """Every way to change this line once: (the line then, kind, begin and end of what changes). code: the line, blanked."""
    if not code.strip() or re.match(r"\s*(#|template|static_assert|using |namespace |(?:static |inline )*constexpr )", code):
        return []
    found = []

    def replace(kind, begin, end, text):
        found.append((line[:begin] + text + line[end:], kind, begin, end))

    for match in OPERATOR.finditer(code):
        replace("expression", *match.span(), SWAPS[match.group(0)])
    for match in STEP.finditer(code):
        replace("expression", *match.span(), "--" if match.group(0) == "++" else "++")
    for match in NUMBER.finditer(code):
        replace("constant", *match.span(), str(int(match.group(1)) + 1))
    for match in TRUTH.finditer(code):
        replace("constant", *match.span(), "false" if match.group(0) == "true" else "true")
    if match := CONDITION.match(code):
        begin, end = match.span(2)
        replace("condition", begin, end, f"!({line[begin:end]})")
    whole = len(line) - len(line.lstrip()), len(code.rstrip())
    if match := STATEMENT.match(code):
        found.append((match.group(1) + ";", "statement", *whole))
    if match := RETURN.match(code):
        found.append((f"{match.group(1)}{match.group(2)} {{}};", "return", *whole))
    if match := JUMP.match(code):
        found.append((match.group(1) + ";", "statement", *whole))
    return [site for site in found if site[0] != line and not same_value(line, site[0])]


def partner(code, at, step):
    """Where the bracket at a place is closed, or with step -1 was opened."""
    depth = 0
    while 0 <= at < len(code):
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if depth == 0:
            break
        at += step
    return at


def expression_around(code, begin, end):
    """Begin and end of the expression that has an operator there; None: part of one that awaits, where g++ 12 miscompiles conditionals."""
    assigns = code[end - 1] == "=" and code[begin:end] not in ("==", "!=", "<=", ">=")
    left, right = begin, end
    while left > 0:
        if code[left - 2:left] in ("==", "!=", "<=", ">=", "::"):
            left -= 2
        elif BEGIN.search(code, max(0, left - 200), left) and not (code[left - 1].isalnum() and code[left].isalnum()):
            break
        elif code[left - 1] in ")]}":
            opened = partner(code, left - 1, -1)
            if HEAD.search(code, max(0, opened - 20), opened):
                break
            left = opened
        else:
            left -= 1
    while right < len(code) and code[right] not in ")]},;":
        if not assigns and (code[right] == "?" or code[right] == ":" and ":" not in (code[right - 1], code[right + 1])):
            break
        right = partner(code, right, 1) + 1 if code[right] in "([{" else right + 1
    statement = max(code.rfind(mark, 0, left) for mark in ";{}")
    return None if "co_await" in code[max(0, statement):right] else (left, right)


def span_of(text, m):
    """What a mutation is written around, in the text of its file; None: it cannot be chosen at run time."""
    start = sum(len(line) + 1 for line in text.split("\n")[:m.line - 1])
    begin, end = start + m.begin, start + m.end
    code = blanked(text)
    if m.kind == "expression":
        return expression_around(code, begin, end)
    # A statement that is deleted must begin on this line.
    return (begin, end) if m.kind != "statement" or re.search(r"(?:[;{}:)]|\belse|\bdo)\s*$", code[:begin]) else None


def woven(text, mutations):
    """The text of a file with all these mutations, {id: Mutation}: each behind its switch, around what stands there. Lines stay where they are."""
    bare, pieces = blanked(text, comments_alone=True), []
    for id_, m in mutations.items():
        begin, end = span_of(text, m)
        new = m.after[m.begin:len(m.after) - len(m.before) + m.end]
        chosen = f"coshard_mutant({id_})"
        if m.kind == "expression":
            at = sum(len(line) + 1 for line in text.split("\n")[:m.line - 1]) + m.begin
            other = bare[begin:at] + new + bare[at + m.end - m.begin:end]
            around = f"({chosen} ? ({other}) : (".replace("\n", " "), "))"
        elif m.kind == "constant":
            around = f"({chosen} ? {new} : ", ")"
        elif m.kind == "condition":
            around = f"({chosen} != bool(", "))"
        elif m.kind == "return":
            around = f"{{ if ({chosen}) {m.after.strip()} ", " }"
        else:
            around = f"{{ if (!{chosen}) {{ ", " } }"
        pieces += [((begin, 1, -end, id_), around[0]), ((end, 0, -begin, -id_), around[1])]
    done, last = [], 0
    for (at, *_), piece in sorted(pieces):  # what is within another comes inside of it
        done += [text[last:at], piece]
        last = at
    return "".join(done) + text[last:]


def same_value(before, after):
    """Whether only a zero became another zero, as in `return false;` -> `return {};`."""
    return re.sub(r"return (0|false|nullptr|\"\");", "return {};", before) == after


def drawn(rng, texts, paths):
    """Mutations without end, each once: of a line, each line of code as likely as any other."""
    files = {path: list(zip(texts[path].split("\n"), blanked(texts[path]).split("\n"))) for path in paths}
    lines = [(path, number) for path in paths for number in range(len(files[path]))]
    seen = set()
    while lines:
        path, number = place = rng.choice(lines)
        found = {after: Mutation(path, number + 1, files[path][number][0], after, *site)
                 for after, *site in sites_of(*files[path][number]) if (path, number, after) not in seen}
        if found:
            m = found[rng.choice(list(found))]
            seen.add((path, number, m.after))
            yield m
        else:
            lines.remove(place)
