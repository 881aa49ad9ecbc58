"""Jobs: training and encoding in child processes, queued in a database, one at a time per host."""
