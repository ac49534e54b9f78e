"""Where the bundled program starts, after `interrupts.py`; in a checkout `python -m app` does the same."""

import multiprocessing
import os
import signal
import sys

from app.__main__ import INTERRUPTED, main

if __name__ == "__main__":
    # A process that multiprocessing starts is this executable again, with arguments that only this call understands.
    multiprocessing.freeze_support()
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(main())
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
