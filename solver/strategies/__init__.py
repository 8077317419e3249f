"""Published strategies on whole graphs, one file each, all on the same problem type."""
