"""What one pass is fed: ragged rows of new tokens, chains and trees, cut into rectangles padded on the right.

A *slot* is a place in a row's cache, a *position* is what the model's position embedding sees. They are the
same for everything held and for a chain; in a tree, tokens of equal depth share a position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

# Cost follows the longest row in use; rounding its length up makes the same few shapes come back.
VIEW_STEP = 64
# A run of the model costs about as much as so many positions more in another run.
PASS_COST = 32


@dataclass(frozen=True, slots=True)
class Feed:
    """New tokens of one row, which are written from slot `start` on."""

    start: int
    token_ids: Integers
    positions: Integers
    num_seen: Integers  # how many slots, from the first, each token sees
    wanted: Booleans  # whose logits are asked for
    # Of the last tokens, those from where a tree first branches: which of one another each sees besides.
    lineage: Booleans

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def end(self) -> int:
        """The slot after the last one written."""
        return self.start + len(self)

    @classmethod
    def of(
        cls, start: int, token_ids: Sequence[int], num_logits: int, parents: Sequence[int] | None = None
    ) -> "Feed":
        """Lay out the tokens that follow the `start` held ones: a chain, or a tree where `parents` are given.

        `parents`: the index of each token's parent, which precedes it; -1 is the last token held.
        """
        count = len(token_ids)
        # What leads up to the first branching is seen by all that follows it, as what is held already.
        trunk = min((up + 1 for token, up in enumerate(parents or ()) if up != token - 1), default=count)
        tokens = np.arange(count)
        positions = tokens.copy()
        lineage = np.eye(count - trunk, dtype=np.bool_)  # a token is in its own lineage
        for token, parent in enumerate((parents or ())[trunk:]):
            if parent >= trunk:
                lineage[token] |= lineage[parent - trunk]
        positions[trunk:] = trunk + lineage.sum(axis=1) - 1
        return cls(
            start,
            np.array(token_ids, np.int64),
            start + positions,
            start + np.minimum(tokens + 1, trunk),
            tokens >= count - num_logits,
            lineage,
        )


@dataclass(frozen=True, slots=True)
class Overlay:
    """What trees add to a piece: the slots that each token sees besides, `[rows, width, view]`, and the
    position of the token at each slot, `[rows, view]`.
    """

    lineage: Booleans
    slot_positions: Integers


@dataclass(frozen=True, slots=True)
class Piece:
    """A rectangle `[rows, width]` of tokens that goes through the model at once.

    Padding stands at position 0, writes to a slot that nobody reads, and sees slot 0 alone: it is never
    without something to attend to, which would make it NaN.
    """

    rows: slice  # the rows of the cache that take part
    begin: int  # which of each row's new tokens comes first
    view: int  # the slots of each row that take part, at least those in use
    token_ids: Integers
    positions: Integers
    slots: Integers  # where each token's key and value go
    num_seen: Integers
    wanted: Booleans
    overlay: Overlay | None  # None where all rows are chains


def cut(feeds: Sequence[Feed], width: int, num_slots: int) -> Iterator[Piece]:
    """Cut the feeds of all rows into rectangles at most `width` wide.

    Each piece is of neighbouring rows. `num_slots`: how many slots a row of the cache has; the last one takes
    what padding writes.
    """
    for begin in range(0, max(map(len, feeds), default=0), width):
        for rows in runs([min(max(len(feed) - begin, 0), width) for feed in feeds]):
            yield _piece(rows, feeds[rows], begin, width, num_slots)


def runs(widths: Sequence[int]) -> Sequence[slice]:
    """The runs of rows that go through the model together, so that all pass that have tokens.

    They are those of least cost: a prompt is not padded to all rows, and a few tokens are not read alone.
    """
    cheapest: list[tuple[int, tuple[slice, ...]]] = [(0, ())]  # of the first rows, none to all
    for end, width in enumerate(widths, start=1):
        ways = [] if width else [cheapest[-1]]
        widest = 0
        for start in range(end - 1, -1, -1):
            widest = max(widest, widths[start])
            cost, before = cheapest[start]
            ways.append((cost + PASS_COST + (end - start) * widest, (*before, slice(start, end))))
        cheapest.append(min(ways, key=lambda way: way[0]))
    return cheapest[-1][1]


def _piece(rows: slice, feeds: Sequence[Feed], begin: int, width: int, num_slots: int) -> Piece:
    """Tokens `begin` to `begin + width` of each feed."""
    taken = [slice(begin, min(begin + width, len(feed))) for feed in feeds]
    in_use = max(feed.start + part.stop for feed, part in zip(feeds, taken, strict=True))
    view = min(-(-in_use // VIEW_STEP) * VIEW_STEP, num_slots)
    shape = (len(feeds), max(part.stop for part in taken) - begin)
    piece = Piece(
        rows,
        begin,
        view,
        token_ids=np.zeros(shape, np.int64),
        positions=np.zeros(shape, np.int64),
        slots=np.full(shape, num_slots - 1),
        num_seen=np.ones(shape, np.int64),
        wanted=np.zeros(shape, np.bool_),
        overlay=_overlay(feeds, taken, shape, view),
    )
    for row, (feed, part) in enumerate(zip(feeds, taken, strict=True)):
        new = slice(0, len(feed.token_ids[part]))
        piece.token_ids[row, new] = feed.token_ids[part]
        piece.positions[row, new] = feed.positions[part]
        piece.slots[row, new] = feed.start + np.arange(len(feed))[part]
        piece.num_seen[row, new] = feed.num_seen[part]
        piece.wanted[row, new] = feed.wanted[part]
    return piece


def _overlay(
    feeds: Sequence[Feed], taken: Sequence[slice], shape: tuple[int, int], view: int
) -> Overlay | None:
    overlay = None
    for row, (feed, part) in enumerate(zip(feeds, taken, strict=True)):
        trunk = len(feed) - len(feed.lineage)
        first = max(part.start, trunk)
        if first < part.stop:
            overlay = overlay or Overlay(
                np.zeros((*shape, view), np.bool_), np.tile(np.arange(view), (len(feeds), 1))
            )
            written = slice(feed.start + trunk, feed.start + part.stop)
            new = slice(first - part.start, part.stop - part.start)
            overlay.lineage[row, new, written] = feed.lineage[
                first - trunk : part.stop - trunk, : part.stop - trunk
            ]
            overlay.slot_positions[row, written] = feed.positions[trunk : part.stop]
    return overlay
