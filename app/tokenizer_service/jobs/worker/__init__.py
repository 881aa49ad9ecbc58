"""The child process that runs one job: `python -m tokenizer_service.jobs.worker`."""
