"""Self-contained HTML pages: prose, tables and pictures in one file."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from draftwise.errors import OptionError

_CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
figure { margin: 1.5rem 0; overflow-x: auto; }
figcaption { color: #555; font-size: .9em; }
pre, code { font-family: ui-monospace, monospace; font-size: .9em; }
pre { white-space: pre-wrap; }
"""
Cell = str | int | float | None


def shown(cell: Cell) -> str:
    """A cell as text: numbers to two places, nothing for None."""
    if cell is None:
        return "-"
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table with one row of heads."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(shown(cell))}</td>" for cell in row) + "</tr>\n" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>\n"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>\n"


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>\n"


def picture(svg: str, caption: str) -> str:
    """A picture, given as an `<svg>` element, with what it shows."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>\n"


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page; `parts`: elements as made by the functions above."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{_CSS}</style></head>\n<body><h1>{escape(title)}</h1>\n{''.join(parts)}</body></html>\n"
    )


def write(file: Path, text: str) -> None:
    """Write a text file and the folders above it; raises OptionError where that cannot be done."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{file} cannot be written ({error.strerror}); give another path.") from None
