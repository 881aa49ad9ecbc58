"""Results to responses: what several routes share."""
