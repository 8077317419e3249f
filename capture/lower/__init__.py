"""The FX graph to `ir.Graph`: operations, views and storages, by the user's names."""
