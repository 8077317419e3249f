"""`remat-gen calibrate` with calls of the CPU's sizes: for a rehearsal on a device of no speed."""

from __future__ import annotations

from remat_gen.capture.profile import calibrate
from remat_gen.cli.app import run

calibrate._OF_GPU = calibrate._OF_CPU
run()
