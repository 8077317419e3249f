"""The law of schedules: the problem, a schedule, when values go, and the replay that judges."""
