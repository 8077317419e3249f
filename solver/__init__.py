"""Plain numbers in, schedule out. Imports neither torch nor the other folders, but `ir.paths`."""
