"""A schedule as statements: what each block computes, keeps, frees and rematerialises."""
