"""What the bundled program does first, before PyInstaller's hooks and `launch.py`.

Ctrl-C while they import would end in a traceback, so that the system ends the process instead until the program takes
Ctrl-C into its own hands. A program that was started with Ctrl-C ignored goes on ignoring it. What comes even before,
the interpreter's start and PyInstaller's bootstrap, cannot be reached from here.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
