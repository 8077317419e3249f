"""`python -m remat_gen` is `remat-gen`."""

from remat_gen.cli import run

run()
