"""The graph, costs and plan of a training step: frozen dataclasses, their checks, their JSON."""
