"""An online index of one growing text: which of its ends occurred in it before, and where."""

from array import array

Place = tuple[int, int]  # of a text in an automaton: a state, and how many tokens of the text it stands for

_NONE = -1
_ROOT = 0
# How many suffixes of the text learn at each token that they have occurred again: in running text nearly all.
# Where one token is repeated there are as many as tokens, and the bound keeps an append cheap.
_REFRESHED = 16
_MOST_BRANCHES = 64


class SuffixAutomaton:
    """Knows the longest end of a text that occurred earlier in it; appending takes amortised constant time.

    The smallest automaton that accepts all substrings of the text, grown token by token (Blumer et al.,
    1985). A state stands for the substrings that share their end positions, and its link for their longest
    suffix that has more of them. The whole text has one end position, so its link is the longest suffix that
    occurred before. There are at most 2 states and 3 transitions for each token.

    It also follows other texts: a place in it is a state and a length, that of the longest end of the other
    text that occurs in this one.
    """

    root = _ROOT, 0  # the place of the empty text

    def __init__(self) -> None:
        # One entry for each state. Most states have one transition, so the first one made is kept in the
        # arrays, and a dict is made only for those that branch.
        self._length = array("i", [0])  # of the longest substring
        self._link = array("i", [_NONE])
        self._end = array("i", [0])  # an end position: how many tokens of the text reach to it
        self._count = array("i", [0])  # how many end positions there are, up to the bound on refreshed ones
        self._token = array("i", [_NONE])
        self._next = array("i", [_NONE])
        self._branches: dict[int, dict[int, int]] = {}
        self._last = _ROOT  # the state of the whole text
        self.match_length = 0  # tokens in the longest suffix of the text that occurred earlier
        self.match_end = 0  # where it did: the tokens before this position end with the match

    def __len__(self) -> int:
        """Tokens appended so far."""
        return self._length[self._last]

    def append(self, token_id: int) -> None:
        """Extend the text by one token, and find the match anew."""
        previous, end = self._last, len(self) + 1
        self._last = self._add(end, end, 1)
        state = previous
        while state != _NONE and self._follow(state, token_id) == _NONE:
            self._connect(state, token_id, self._last)
            state = self._link[state]
        link = _ROOT if state == _NONE else self._single(state, token_id)
        self._link[self._last] = link
        self.match_length, self.match_end = self._length[link], self._end[link]
        for _ in range(_REFRESHED):
            if link == _ROOT:
                break
            self._end[link] = end
            self._count[link] += 1
            link = self._link[link]

    @property
    def match(self) -> Place:
        """The place of the longest suffix of the text that occurred earlier."""
        return self._link[self._last] if self._last else _ROOT, self.match_length

    def follow(self, place: Place, token_id: int) -> Place:
        """The place of another text after one more token; amortised constant time.

        This text may have grown since the place was found.
        """
        state, length = self._settled(place)
        while (ahead := self._follow(state, token_id)) == _NONE:
            state = self._link[state]
            if state == _NONE:
                return self.root
            length = self._length[state]
        return ahead, length + 1

    def following(self, place: Place) -> list[tuple[int, int, int]]:
        """What followed the text of a place: (how often, latest end of it, token), in no order.

        Nothing where so much did that none of it is a guess worth its time.
        """
        state, _ = self._settled(place)
        branches = self._branches.get(state, {})
        if self._token[state] == _NONE or len(branches) > _MOST_BRANCHES:
            return []
        ahead = {self._token[state]: self._next[state], **branches}
        return [(self._count[next_], self._end[next_], token_id) for token_id, next_ in ahead.items()]

    def went_on(self, place: Place, token_id: int) -> tuple[int, int]:
        """How often the text of a place went on with a token, and with another one; of this text's own end,
        the longest shorter end of it that went on.
        """
        state, _ = self._settled(place)
        while self._token[state] == _NONE and state != _ROOT:
            state = self._link[state]
        if self._token[state] == _NONE:  # the empty text
            return 0, 0
        ahead = self._follow(state, token_id)
        num_alike = 0 if ahead == _NONE else self._count[ahead]
        num_other = self._count[self._next[state]] - num_alike
        for next_ in self._branches.get(state, {}).values():
            num_other += self._count[next_]
        return num_alike, num_other

    def shorten(self, place: Place) -> Place:
        """The longest shorter end of a place's text that occurs elsewhere too."""
        state = max(self._link[self._settled(place)[0]], _ROOT)
        return state, self._length[state]

    def _settled(self, place: Place) -> Place:
        """The same place after this text has grown: a clone may have taken a state's shorter substrings."""
        state, length = place
        while length and length <= self._length[self._link[state]]:
            state = self._link[state]
        return state, length

    def _single(self, state: int, token_id: int) -> int:
        """The state whose longest substring is that of `state` and the token: found, or cloned."""
        target = self._follow(state, token_id)
        length = self._length[state] + 1
        if self._length[target] == length:
            return target
        clone = self._add(length, self._end[target], self._count[target])
        self._token[clone], self._next[clone] = self._token[target], self._next[target]
        if target in self._branches:
            self._branches[clone] = self._branches[target].copy()
        self._link[clone] = self._link[target]
        self._link[target] = clone
        while state != _NONE and self._follow(state, token_id) == target:
            self._connect(state, token_id, clone)
            state = self._link[state]
        return clone

    def _add(self, length: int, end: int, count: int) -> int:
        self._length.append(length)
        self._end.append(end)
        self._count.append(count)
        for column in (self._link, self._token, self._next):
            column.append(_NONE)
        return len(self._length) - 1

    def _follow(self, state: int, token_id: int) -> int:
        if self._token[state] == token_id:
            return self._next[state]
        branches = self._branches.get(state)
        return branches.get(token_id, _NONE) if branches else _NONE

    def _connect(self, state: int, token_id: int, target: int) -> None:
        if self._token[state] in (token_id, _NONE):
            self._token[state], self._next[state] = token_id, target
        else:
            self._branches.setdefault(state, {})[token_id] = target
