"""One joint graph of forward and backward, by AOTAutograd; with symbolic lengths."""
