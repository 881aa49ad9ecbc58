"""Jobs: training and encoding in child processes, kept in a database, run one at a time a host."""
