"""Access: keys, limits and deadlines of requests."""
