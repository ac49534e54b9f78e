"""Paths of the helpers that these tests share with the hub's, and a window of the app's."""

from __future__ import annotations

import sys
from pathlib import Path

HUB = Path(__file__).parents[1] / "hub"
if str(HUB) not in sys.path:
    sys.path.append(str(HUB))
