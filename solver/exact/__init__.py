"""Search of whole graphs with proofs: the optimum, or a bound and the gap."""
