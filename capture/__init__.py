"""Model file to graph and costs. The only place that knows FX and AOTAutograd."""
