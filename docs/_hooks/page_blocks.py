"""Code blocks of a page: which ones run, and how the page looks once they have.

    ```python                       runs; what it prints and the pictures that it saves stand below it
    ```python fold title="..."      runs; the code is folded away below its output
    ```python alt="..."             runs; alt is the text for those who cannot see the picture
    ```python no-run                does not run
    ```bash run                     runs in the same folder; without `run` a shell block is only shown

Blocks must begin in the first column: those inside of lists and boxes do not run, and a test refuses them.
"""

import dataclasses
import re
import shlex
import textwrap
from collections.abc import Callable

# Columns that fit beside the navigation on a desk.
_WIDTH = 92
_OPEN = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>.*)$")


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block. first, last: its lines in the page, fences included, counted from 0."""

    language: str
    options: dict[str, str]
    code: str
    first: int
    last: int
    indent: int

    @property
    def runs(self) -> bool:
        if self.language == "python":
            return "no-run" not in self.options
        return self.language == "bash" and "run" in self.options


def read_blocks(markdown: str) -> list[Block]:
    """All fenced blocks, in order."""
    lines, blocks, at = markdown.split("\n"), [], 0
    while at < len(lines):
        opened = _OPEN.match(lines[at])
        if not opened:
            at += 1
            continue
        closing = re.compile(rf"^ *{re.escape(opened['fence'][0])}{{{len(opened['fence'])},}} *$")
        end = next((i for i in range(at + 1, len(lines)) if closing.match(lines[i])), None)
        if end is None:
            raise ValueError(f"line {at + 1}: the block that begins here has no end.")
        language, *rest = shlex.split(opened["info"]) or [""]
        options = {name: value for name, _, value in (word.partition("=") for word in rest)}
        code = "\n".join(lines[at + 1 : end])
        blocks.append(Block(language, options, code, at, end, len(opened["indent"])))
        at = end + 1
    return blocks


@dataclasses.dataclass(frozen=True)
class Output:
    """What a block printed, and names of the pictures that it left (each exists as NAME-light and NAME-dark)."""

    text: str
    pictures: tuple[str, ...]


def with_outputs(markdown: str, outputs: list[Output], link: Callable[[str, str], str]) -> str:
    """The page with what its blocks gave. `link(picture, theme)` is the address of a picture."""
    lines, at, written = markdown.split("\n"), 0, []
    given = iter(outputs)
    for block in read_blocks(markdown):
        written += lines[at : block.first]
        at = block.last + 1
        # Options are ours; a renderer wants the language alone.
        shown = [f"```{block.language}", *block.code.split("\n"), "```"]
        if block.indent or not (block.options or block.runs):
            written += lines[block.first : at]
            continue
        result = _result(next(given), block, link) if block.runs else []
        if "fold" in block.options:
            title = block.options.get("title", "The code")
            fold = [f'??? code "{title}"', "", *(f"    {line}" if line else "" for line in shown), ""]
            written += [*result, "", *fold]
        else:
            written += [*shown, *result]
    return "\n".join([*written, *lines[at:]])


def _result(output: Output, block: Block, link: Callable[[str, str], str]) -> list[str]:
    lines = []
    if output.text.strip():
        # Longer than any fence that may have been printed.
        fence = "`" * (max((len(run) for run in re.findall(r"`+", output.text)), default=0) + 4)
        text = [part for line in output.text.strip("\n").split("\n") for part in _wrapped(line)]
        opened, closed = ["", '<div class="output" markdown>', ""], ["", "</div>", ""]
        lines += [*opened, f"{fence} {{ .text .no-copy }}", *text, fence, *closed]
    if output.pictures:
        lines += ["", '<div class="pictures" markdown>', ""]
        for name in output.pictures:
            alt = block.options.get("alt", re.sub(r"[-_]+", " ", name))
            lines += ["".join(f"![{alt}]({link(name, theme)}#only-{theme})" for theme in ("light", "dark")), ""]
        lines += ["</div>", ""]
    return lines


def _wrapped(line: str) -> list[str]:
    """A long line of prose in several; rows of a table stay whole."""
    words = line.lstrip(" ")
    if len(line) <= _WIDTH or "  " in words:
        return [line]
    indent = " " * (len(line) - len(words))
    hanging = indent + "  " * words.startswith("- ")
    return textwrap.wrap(words, _WIDTH, initial_indent=indent, subsequent_indent=hanging, break_long_words=False)
