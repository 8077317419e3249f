"""`python -m remat_gen` is `remat-gen`."""

from remat_gen.cli.app import run

run()
