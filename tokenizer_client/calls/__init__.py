"""The calls of the client, one generator each, grouped by resource.

A call (`Flow`) yields steps ("send this request", "wait 0.5 s") and receives their results. It does
no I/O itself, so `Client` and `AsyncClient` run the same call, one blocking, one awaiting.

`text`, `streams`, `service`, `corpora` and `jobs` hold the calls. `exchange` holds the steps and
what every request shares, `retries` the decisions after a failure, `wire_formats` bytes <-> ids and
records, `local_files` what a call reads from and writes to the disk.
"""
