"""What is known of one drafter on one row."""

from dataclasses import dataclass, field

from draftwise.control.acceptance import Acceptance


@dataclass(slots=True)
class Standing:
    """How well a drafter guesses, how much of the context it has read, and what it has missed since."""

    acceptance: Acceptance = field(default_factory=Acceptance)
    num_read: int = 0
    missed: float = 0.0  # seconds that it would have won over all others since it last drafted
    num_missed: int = 0  # tokens of the text since then

    def drafts(self, num_read: int) -> None:
        """It has read so many tokens, to draft after them."""
        self.num_read, self.missed, self.num_missed = num_read, 0.0, 0

    def misses(self, lead: float, num_tokens: int) -> None:
        """A step went by without it, of so many tokens; it would have won `lead` seconds over all others."""
        self.missed += lead
        self.num_missed += num_tokens

    def is_worth(self, reading: float, lead: float, budget: int) -> bool:
        """Whether what it missed until now, and `lead` in this step, pays for its reading if it goes on so.

        `reading`: the seconds to read what it has not; `budget`: tokens that are left. A drafter that has
        to read a long prompt waits for what others make of it: they may be ahead for most of the text.
        """
        num_tokens = self.num_missed + 2  # this step's, and one for the luck of the first: it wins nothing
        return (self.missed + lead) * budget >= reading * num_tokens
