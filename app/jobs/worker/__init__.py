"""The child process that runs one job: `python -m app.jobs.worker`."""
