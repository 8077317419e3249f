"""What `--compile` is made of: functions that are fused, measured, named and emitted."""
