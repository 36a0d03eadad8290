"""`python -m syncline`: the same as the command `syncline`."""

import sys

from syncline.cli import main

if __name__ == "__main__":
    sys.exit(main())
