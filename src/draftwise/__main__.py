"""`python -m draftwise` is the command line."""

import sys

from draftwise.cli import main

if __name__ == "__main__":
    sys.exit(main())
