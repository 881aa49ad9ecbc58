"""One module for each group of routes; each defines a `router` that `main` includes."""
