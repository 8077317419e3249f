"""What differs between kinds of devices, a file per kind: all else asks here."""
