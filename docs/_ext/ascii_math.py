"""Formulas as docstrings write them for a terminal, read into TeX.

    theta_{t+1} <- theta_t - eta grad l(theta_t; z),      |Phi(u) - Phi(v)| <= (eps_bar L / mu) |u - v|

Greek letters go by name; `_` and `^` carry the shortest thing after them, `_bar`, `_hat` and `_tilde` are accents;
words stand upright; fractions stay on the line. What has two readings is refused: `Unreadable`.
"""

import itertools
import re
from dataclasses import dataclass

from ascii_tokens import (
    ACCENTS,
    CONNECTIVES,
    FUNCTIONS,
    GREEK,
    LIMITS,
    RELATIONS,
    SIGNS,
    Token,
    Unreadable,
    is_word,
    tokens,
)

_SIDE_BY_SIDE = {"operand", "function", "word", "code", "prefix"}
_CLOSES = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Item:
    """A piece of a formula. kind: operand, function, word, code, sign, relation, mark."""

    kind: str
    tex: str
    spaced: bool
    text: str = ""


def read(formula: str, parameters: frozenset[str] = frozenset(), expectations: bool = False) -> list[Item]:
    """The items of a formula.

    parameters: Names of the parameters: `a` is not an article if it is one of them.
    expectations: Whether every E is an expectation; otherwise only an E attached to its argument is.
    """
    return Reader(tokens(formula), parameters, expectations).items(None)


def joined(items: list[Item]) -> str:
    """TeX of items side by side: a gap is a thin space between factors, and a wider one beside a word."""
    written = items[0].tex if items else ""
    for before, item in itertools.pairwise(items):
        words = {"word", "code"} & {before.kind, item.kind}
        if item.spaced and {before.kind, item.kind} <= _SIDE_BY_SIDE:
            written += r"\ " if words else r"\,"
        elif item.spaced and ((before.text in (",", ";") and words) or before.text == ":"):
            written += r"\ "
        written += f" {item.tex}"
    return written


class Reader:
    """Walks along the tokens of one formula."""

    def __init__(self, found: list[Token], parameters: frozenset[str], expectations: bool):
        self.tokens, self.at, self.parameters, self.expectations = found, 0, parameters, expectations
        self.depth = 0  # of subscripts and powers

    def peek(self, ahead: int = 0) -> Token | None:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            raise Unreadable("it ends too early")
        self.at += 1
        return token

    def beside(self, text: str, ahead: int = 0) -> bool:
        """Whether the next token is this one, without a gap before it."""
        token = self.peek(ahead)
        return token is not None and token.text == text and not token.spaced

    def items(self, end: str | None) -> list[Item]:
        """Items up to a closing bracket, or to the end."""
        found: list[Item] = []
        while (token := self.peek()) is not None:
            if token.text == end and not (end == "|" and not self.closes(found)):
                self.take()
                return found
            found.append(self.item(found))
        if end is not None:
            raise Unreadable(f"no {end!r}")
        return found

    def closes(self, found: list[Item]) -> bool:
        """Whether the bar that comes next ends what another began."""
        if not found or found[-1].kind in ("sign", "relation"):
            return False
        bar, after = self.peek(), self.peek(1)
        assert bar is not None
        operand_after = after is not None and after.kind not in ("sign",) and after.text not in ",;:)]}"
        if bar.spaced and operand_after and after is not None and after.spaced:
            raise Unreadable("a bar that ends a size or begins a condition")
        return True

    def item(self, found: list[Item]) -> Item:
        token = self.take()
        if token.text == "*" and token.spaced and (after := self.peek()) is not None and after.spaced:
            token = self.take()  # factors stand side by side
        made = getattr(self, f"_{token.kind}")(token, found)
        return made if isinstance(made, Item) else Item("operand", made, token.spaced, token.text)

    def _number(self, token: Token, found: list[Item]) -> str:
        if self.beside("{"):  # an indicator
            return rf"{{\mathbf{{{token.text}}}}}" + self.group(self.take())
        if self.beside(",") and (after := self.peek(1)) is not None and after.kind == "number" and not after.spaced:
            raise Unreadable("thousands or two numbers")
        return self.with_scripts(token.text)

    def _dots(self, token: Token, found: list[Item]) -> str:
        return r"\ldots"

    def _possessive(self, token: Token, found: list[Item]) -> Item:
        if found and found[-1].kind == "word":  # it is drawn together with the word
            before = found.pop()
            return Item("word", rf"{before.tex[:-1]}'s}}", before.spaced, f"{before.text}'s")
        return Item("word", r"\text{'s}", False, "'s")

    def _place(self, token: Token, found: list[Item]) -> Item:
        return Item("word", rf"\text{{{token.text}}}", token.spaced, token.text)

    def _ordinal(self, token: Token, found: list[Item]) -> str:
        return rf"{token.text[0]}\text{{-th}}"

    def _differential(self, token: Token, found: list[Item]) -> str:
        rest = token.text[1:]
        return f"d{GREEK.get(rest, rest)}"

    def _code(self, token: Token, found: list[Item]) -> Item:
        if re.search(r"[{}$\\]", token.text):
            raise Unreadable(token.text)
        return Item("code", rf"\text{{{token.text.strip('`')}}}", token.spaced, token.text)

    def _hyphenated(self, token: Token, found: list[Item]) -> Item:
        known = {*GREEK, *LIMITS, *FUNCTIONS, *self.parameters}
        if known & set(token.text.split("-")):
            raise Unreadable(f"{token.text!r} is a word or a difference")
        return Item("word", rf"\text{{{token.text}}}", token.spaced, token.text)

    def _sign(self, token: Token, found: list[Item]) -> Item:
        after = self.peek()
        alone = not found or found[-1].kind in ("relation", "sign") or found[-1].text in (",", ";", ":")
        if token.text in "+-" and (alone or (token.spaced and after is not None and not after.spaced)):
            return Item("prefix", rf"\text{{{token.text.replace('-', chr(0x2212))}}}", token.spaced, token.text)
        if token.text not in SIGNS:
            raise Unreadable(f"{token.text!r} without a gap")
        kind = "relation" if token.text in RELATIONS else "sign"
        return Item(kind, SIGNS[token.text], token.spaced, token.text)

    def _mark(self, token: Token, found: list[Item]) -> Item | str:
        after = self.peek()
        if token.text in _CLOSES:
            empty_looking = token.text == "(" and self.beside("x") and self.beside(")", 1)
            if token.spaced and empty_looking and (last := self.peek(2)) is not None and last.spaced:
                raise Unreadable("(x) is a Kronecker product or a group")
            return self.with_scripts(self.group(token))
        if token.text == "|":
            return self.bar(token, found)
        if token.text in ",;":
            return Item("mark", token.text, False, token.text)
        if token.text == ":":
            return Item("mark", ":" if token.spaced else r"\colon", token.spaced, ":")
        if token.text == "#" and self.beside("{"):
            return r"\text{#}" + self.group(self.take())
        if token.text == "." and after is not None:
            return self.dot(token, found, after)
        raise Unreadable(f"{token.text!r} where it has no reading")

    def dot(self, token: Token, found: list[Item], after: Token) -> Item:
        """A product of vectors, or the place of an argument."""
        glued = not token.spaced and not after.spaced
        if glued and found and (is_word(found[-1].text) or is_word(after.text)):
            raise Unreadable("a path of names")
        if found and ((glued and found[-1].kind == "operand") or (token.spaced and after.spaced)):
            return Item("sign", r"\cdot", True, ".")
        if not found and (after.text in ";|)," or after.spaced):
            return Item("operand", r"\cdot", token.spaced, ".")
        raise Unreadable("a dot")

    def bar(self, token: Token, found: list[Item]) -> Item | str:
        after = self.peek()
        if after is None:
            raise Unreadable("a bar at the end")
        before_it = found and found[-1].kind not in ("sign", "relation", "mark")
        if before_it and token.spaced and after.spaced:
            return Item("relation", r"\mid", True, "|")
        return self.with_scripts(rf"\left| {joined(self.items('|'))} \right|")

    def group(self, opened: Token) -> str:
        inner = joined(self.items(_CLOSES[opened.text]))
        left, right = (r"\{", r"\}") if opened.text == "{" else (opened.text, _CLOSES[opened.text])
        return rf"{left}{inner}{right}"

    def _name(self, token: Token, found: list[Item]) -> Item | str:
        name, after = token.text, self.peek()
        glued = after is not None and not after.spaced
        if name in ("sqrt", "floor", "ceil") and self.beside("("):
            inner = joined(self.inside())
            sides = {"sqrt": (r"\sqrt{", "}"), "floor": (r"\lfloor ", r" \rfloor"), "ceil": (r"\lceil ", r" \rceil")}
            return self.with_scripts(sides[name][0] + inner + sides[name][1])
        if name == "mod" and token.spaced and after is not None and after.spaced:
            return Item("sign", r"\bmod", True, name)
        if name == "in" and after is not None and (after.text == "[" or self.depth):
            return Item("relation" if self.depth else "membership", r"\in", True, name)
        if name == "infinity":
            return r"\infty"
        if name == "grad":
            return Item("function", self.with_scripts(r"\nabla", True), token.spaced, name)
        if name in LIMITS and not (after is not None and after.text in ("of", "over")):
            return Item("function", self.with_scripts(LIMITS[name], True), token.spaced, name)
        if name in FUNCTIONS:
            return Item("function", self.with_scripts(FUNCTIONS[name], True), token.spaced, name)
        attached = glued and after is not None and after.text in ("[", "|", "_")
        if name == "E" and (attached or self.expectations):
            return Item("function", self.with_scripts(r"\mathbb{E}", True), token.spaced, name)
        if name == "N" and self.beside("("):
            return Item("function", r"\mathcal{N}", token.spaced, name)
        if self.beside("-") and (hat := self.peek(1)) is not None and hat.text == "hat" and not hat.spaced:
            self.at += 2
            return self.with_scripts(rf"\hat{{{self.letter(name)}}}")
        if is_word(name):
            return self.word(token)
        if name == "a" and self.article():
            return Item("word", r"\text{a}", token.spaced, name)
        return self.with_scripts(self.letter(name))

    def article(self) -> bool:
        """Whether `a` stands before a word; ambiguous if it is also a parameter."""
        after = self.peek()
        if after is None or after.kind != "name" or not is_word(after.text) or after.text in CONNECTIVES | {"mod"}:
            return False
        if after.text in LIMITS or after.text in FUNCTIONS or after.text == "grad" or self.beside("_", 1):
            return False
        if "a" in self.parameters:
            raise Unreadable("`a` is a parameter or an article")
        return True

    def letter(self, name: str) -> str:
        """A letter, Latin or Greek, with the digits that follow it as its subscript."""
        plain, digits = re.fullmatch(r"([A-Za-z]+)(\d*)", name).groups()  # type: ignore[union-attr]  names match
        if plain in GREEK:
            return GREEK[plain] + (f"_{{{digits}}}" if digits else "")
        if len(plain) > 1:
            return rf"\text{{{name}}}"
        return plain + (f"_{{{digits}}}" if digits else "")

    def word(self, token: Token) -> Item:
        """A word, or a name of several words joined by underscores, with its subscripts."""
        name = token.text
        while self.beside("_") and (part := self.peek(1)) is not None and is_word(part.text) and not part.spaced:
            if len(part.text) == 2 or part.text in ACCENTS:
                break
            self.at += 2
            name += f"_{part.text}"
        before = self.at
        tex = self.with_scripts(rf"\text{{{name}}}")
        kind = "operand" if self.at > before or "_" in name else "word"
        if kind == "word" and (self.beside("(") or self.beside("[")):
            kind = "function"
        return Item(kind, tex, token.spaced, name)

    def with_scripts(self, base: str, function: bool = False) -> str:
        """The base with its attachments: subscripts, powers, primes, accents. The prime of `min_x'` is that of x."""
        below, above = re.fullmatch(r"(.*?)(?:_\{(\d+)\})?", base, re.DOTALL).groups(), []  # type: ignore[union-attr]
        base, subscripts = below[0], [below[1]] if below[1] else []
        while (token := self.peek()) is not None and not token.spaced:
            if token.text == "_":
                self.take()
                subscript = self.subscript()
                if subscript in ACCENTS:
                    base = rf"\{subscript}{{{base}}}"
                else:
                    subscripts.append(subscript)
            elif token.text == "^":
                self.take()
                above.append(self.power())
            elif token.text == "'":
                self.take()
                if (word := self.peek()) is not None and word.kind == "name" and not word.spaced:
                    raise Unreadable("an apostrophe")
                if function and subscripts:
                    subscripts[-1] += r"^{\prime}"
                else:
                    above.append(r"\prime")
            elif token.text == "~" and not ((after := self.peek(1)) and not after.spaced and after.kind == "name"):
                self.take()
                base = rf"\tilde{{{base}}}"
            elif token.text in ("*", "+", "-") and self.hangs():
                above.append(self.take().text)
            else:
                break
        if subscripts:
            base += f"_{{{','.join(subscripts)}}}"
        return base + (f"^{{{''.join(above)}}}" if above else "")

    def hangs(self) -> bool:
        """Whether a sign belongs to what stands before it: `F_i*`, `theta+`."""
        after = self.peek(1)
        return after is None or after.spaced or after.text in ",;:)]|"

    def subscript(self) -> str:
        token = self.take()
        if token.spaced:
            raise Unreadable("a subscript apart from its letter")
        if token.text in "({":
            return self.script(token)
        if token.text == "-":
            return "-" + self.subscript()
        if token.kind == "number":
            return token.text
        if token.kind == "sign" or token.kind != "name":
            raise Unreadable(f"{token.text!r} below")
        return subscript_of(token.text)

    def power(self) -> str:
        token = self.take()
        if token.spaced:
            raise Unreadable("a power apart from its base")
        if token.text in "({":
            return self.script(token)
        if token.text == "-":
            return "-" + self.power()
        if token.kind == "number":
            return token.text
        if token.kind != "name":
            raise Unreadable(f"{token.text!r} above")
        base = rf"\text{{{token.text}}}" if is_word(token.text) else self.letter(token.text)
        if self.beside("_"):
            self.take()
            base += f"_{{{self.subscript()}}}"
        return base

    def script(self, opened: Token) -> str:
        self.depth += 1
        inner = joined(self.items(_CLOSES[opened.text]))
        self.depth -= 1
        return inner

    def inside(self) -> list[Item]:
        """What stands in the brackets that come next."""
        return self.items(_CLOSES[self.take().text])


def subscript_of(name: str) -> str:
    """`i`, `ij`, `theta`, `PS`, `max`: letters are indices, one or two of them; words and capitals are names."""
    if name in GREEK:
        return GREEK[name]
    if name in ACCENTS:
        return name
    if name == "infinity":
        return r"\infty"
    if re.fullmatch(r"[A-Za-z]|[a-z]{2}", name):
        return " ".join(name)
    if name.isalpha():
        return rf"\text{{{name}}}"
    raise Unreadable(f"the subscript {name!r}")
