"""The wire contract: request and response models, with literal limits."""
