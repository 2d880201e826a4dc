"""What draftwise raises: each message is one sentence that names the thing and the way out."""


class DraftwiseError(Exception):
    """Base of every error that draftwise raises on purpose."""


class OptionError(DraftwiseError, ValueError):
    """An option has a value that it cannot have, or two options contradict each other."""


class PromptError(DraftwiseError, ValueError):
    """The prompt is empty, is not text, or does not fit the model's context."""


class ModelError(DraftwiseError):
    """A model cannot be found, read or converted."""


class DraftError(DraftwiseError, ValueError):
    """A drafter broke its contract: going on would change the distribution of the output."""


class TokenizerMismatchError(DraftwiseError):
    """The draft model and the target do not share one tokenizer."""


class UnsupportedError(DraftwiseError, NotImplementedError):
    """This model or engine cannot do what was asked; the message names which can."""
