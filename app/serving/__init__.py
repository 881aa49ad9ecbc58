"""What is live in this process, and the hot swap."""
