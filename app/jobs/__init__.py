"""Jobs: taken over HTTP, kept in a database, run one at a time on a host in a child process.

`job_schemas`, `encode_schemas` requests and answers · `corpus_paths` input files, opened under the
corpus roots · `corpus_store` uploaded corpora · `corpus_download` corpora from URLs · `job_inputs`,
`encode_inputs` what a request names, found · `job_folder` what stands on the disk for one job ·
`token_files_folder`, `token_files_store` what encoding jobs write · `job` one row, `job_store` the
rows, `job_database` what holds them: `sqlite_database`, or for replicas `postgres_database` ·
`process_marks` which process a pid means · `trainer_lock` one child at a time · `trainer_process`
the child seen from the server · `training_run` one attempt · `job_work`, `job_kinds` what differs
from kind to kind · `job_runner` the task that claims, settles and promotes · `job_worker` the child
itself, `child_job` what all kinds have in it, `train_child`, `encode_child` what each does ·
`version_retention` which versions go · `job_views` a job as it is answered · `job_events` the
same, each time it changes. May import `app.settings`, `app.live_tokenizers` and the core.
"""
