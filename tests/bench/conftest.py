"""The benchmark's modules lie in benchmarks/, where Python finds them when a script there runs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
