"""One file for each group of routes; each holds a `router` that `app.main` includes."""
