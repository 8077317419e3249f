"""The zoo's modules lie beside its script, where Python finds them when it runs."""

import sys
from pathlib import Path

ZOO = Path(__file__).resolve().parents[2] / "benchmarks" / "zoo"
sys.path.insert(0, str(ZOO))
