"""Parts of a report, defined once: `page` renders them as HTML, `terminal` for rich."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

# Text, or text and a smaller line below it.
Cell = tuple[str, str] | str
# Tables with more columns need the whole width of a page.
_NARROW = 3
_LOUD = "border: 2px solid #d1242f; border-left-width: 10px;"


@dataclass(frozen=True)
class Table:
    """The contents of a table. `notes` appear below it on pages; small text next to a row's name is for pages, too."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()

    def html(self) -> str:
        """An HTML table that scrolls sideways if it is too wide."""

        def cell(entry: Cell) -> str:
            text, small = (entry, "") if isinstance(entry, str) else entry
            return f"<td>{escape(text)}{f' <small>{escape(small)}</small>' if small else ''}</td>"

        top = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.head)
        body = "\n".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in self.rows)
        grid = f'<div class="scroll"><table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
        return grid * bool(self.rows) + "".join(f"<p><small>{escape(note)}</small></p>" for note in self.notes)

    def terminal(self) -> Any:
        """For rich."""
        from rich import box, table
        from rich.text import Text

        grid = table.Table(show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), box=box.SIMPLE_HEAD)
        rows = [[(entry, "") if isinstance(entry, str) else entry for entry in row] for row in self.rows]
        lines = [[f"{t} ({small})" if small and i else t for i, (t, small) in enumerate(row)] for row in rows]
        for i, head in enumerate(self._headings(lines)):
            # What does not fit is wrapped, not cut off.
            grid.add_column("\n".join(head), justify="right" if i else "left", overflow="fold")
        for line in lines:
            grid.add_row(*map(Text, line))
        return grid

    def text(self) -> str:
        """Plain text in aligned columns, the first left-justified."""
        lines = [[cell if isinstance(cell, str) else f"{cell[0]} ({cell[1]})" for cell in row] for row in self.rows]
        heads = self._headings(lines)
        depth = max(map(len, heads), default=0)
        # Headings of fewer lines stand at the bottom.
        top = [("",) * (depth - len(head)) + head for head in heads]
        rows = [*map(list, zip(*top, strict=True)), *lines]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        said = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
        return "\n".join([*said, *self.notes])

    def _headings(self, lines: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """Each heading in lines no wider than its cells, or than its longest word."""
        widest = [
            max(map(len, [*name.split(), *(line[i] for line in lines)]), default=1) for i, name in enumerate(self.head)
        ]
        return [
            tuple(textwrap.wrap(name, width, break_on_hyphens=False)) or ("",)
            for name, width in zip(self.head, widest, strict=True)
        ]


@dataclass(frozen=True)
class Section:
    """One question and its answer.

    Attributes:
        title, answer: the question and a short answer, for pages; a terminal shows the answer after `lead`
        said: sentences; each: sentences by subject, collapsed on pages if `folded`
        about: sentences that explain the figures, for pages only
        code: (what it does, one expression) to copy
        pictures: names of figures
        loud: whether it must not be overlooked
    """

    title: str
    answer: str = ""
    said: Sequence[str] = ()
    tables: Sequence[Table] = ()
    each: Mapping[str, str] = field(default_factory=dict)
    about: Sequence[str] = ()
    code: Sequence[tuple[str, str]] = ()
    pictures: Sequence[str] = ()
    lead: str = ""
    folded: bool = False
    loud: bool = False

    def page(self, drawn: Mapping[str, str]) -> str:
        """HTML of a card, with pictures by name; empty if there is nothing to show."""
        images = [drawn[name] for name in self.pictures if name in drawn]
        text = f'<p class="answer">{escape(self.answer)}</p>' if self.answer else ""
        text += "".join(f"<p>{escape(line)}</p>" for line in (*self.said, *self.about) if line)
        for why, code in self.code:
            text += (f"<p>{escape(why)}</p>" if why else "") + f"<pre>{escape(code)}</pre>"
        tables = "".join(table.html() for table in self.tables)
        each = "".join(f"<p><b>{escape(name)}.</b> {escape(line)}</p>" for name, line in self.each.items())
        if self.folded:
            each = f"<details><summary>Details in words</summary>{each}</details>"
        if not (text or images or tables):
            return ""
        head = f"<h2>{escape(self.title)}</h2>"
        if len(images) == 1 and all(len(table.head) <= _NARROW for table in self.tables):
            return f'<section class="card split"><div>{head}{text}{tables}{each}</div>\n{images[0]}</section>'
        pair = '<div class="split">{}</div>'.format("\n".join(images)) if images else ""
        loud = f' style="{_LOUD}" role="alert"' if self.loud else ""
        return f'<section class="card"{loud}>{head}{text}{pair}{tables}{each}</section>'

    def terminal(self) -> Iterator[Any]:
        """What rich prints; strings are lines to copy and must not be wrapped."""
        from rich.text import Text

        if self.lead:
            yield Text.assemble((f"{self.lead}: ", "bold"), f"{self.answer}. {' '.join(self.said)}")
        for line in () if self.lead else self.said:
            yield Text.assemble(("WARNING " * self.loud, "bold red"), (line, "bold" if self.answer else ""))
        for why, code in self.code:
            yield from [Text(why)] if why else []
            yield f"  {code}"
        for i, table in enumerate(table for table in self.tables if table.rows):
            yield from ("", table.terminal()) if i or self.said else (table.terminal(),)
        yield from [""] if self.each else []
        for name, line in self.each.items():
            yield Text.assemble((f"{name}: ", "bold"), line)
