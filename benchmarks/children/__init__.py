"""What a child process costs: how long its start takes, and how many short tasks a second run in two of them."""
