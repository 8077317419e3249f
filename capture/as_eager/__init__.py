"""What makes a trace do what eager does: kernels, layouts, masks, dropout, autocast."""
