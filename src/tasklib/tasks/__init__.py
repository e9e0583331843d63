"""Task functions: registering them, checking their arguments, and what they may know and say while they run."""
