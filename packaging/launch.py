"""Where the bundled program starts; in a checkout `python -m app` does the same."""

import multiprocessing
import sys

from app.__main__ import main

if __name__ == "__main__":
    # A process that multiprocessing starts is this executable again, with arguments that only this call understands.
    multiprocessing.freeze_support()
    sys.exit(main())
