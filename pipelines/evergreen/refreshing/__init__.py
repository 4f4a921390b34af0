"""Which answers are due, who is asked for them, and how what was said becomes a history."""
