"""Why a value is retained or rematerialised, and what the other choice would cost."""
