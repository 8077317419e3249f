"""The tools that write pages are imported from where they are."""

import sys
from pathlib import Path

from one_thread import one_thread as one_thread

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tools"))
