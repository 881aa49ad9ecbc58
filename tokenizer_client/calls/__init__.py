"""The calls of the client, one generator each, grouped by resource.

A call (`Flow`) yields steps ("send this request", "wait 0.5 s") and receives their results. It does
no I/O itself, so `Client` and `AsyncClient` run the same call, one blocking, one awaiting.

`text`, `streams`, `service`, `corpora` and `jobs` hold the calls. `exchange` defines the steps and
the exchange of one request, `retries` decides what to do after a failure, `wire_formats` converts
bytes to ids and records and back, and `local_files` reads and writes files.
"""
