"""`python -m remat_gen` is `remat-gen`."""

import sys

from remat_gen.cli import main

sys.exit(main())
