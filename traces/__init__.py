"""What is recorded: the tables, the run directory, readers, pure transforms and synthetic arrivals."""
