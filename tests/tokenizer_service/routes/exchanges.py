"""Requests to an app in process, and what every response promises."""

import json
import re
import time
from urllib.parse import unquote

JSON = {"Content-Type": "application/json"}
OTHERS_STATUSES = {406: (400,), 413: (400,), 415: (400,), 422: (400,), 503: (429, 529)}
"""Our status -> those that other servers have for it."""

OF_PYDANTIC = re.compile(
    "(Input|String|List|Value|Data) |should |a valid |unable to|instance of|dictionary|validation"
    "|True|False|match pattern"
)
"""What no message to a user has: it speaks of Python."""


def post(client, path, /, **body):
    """The document of a 200."""
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def problem(response, status, code=""):
    """The document of an error. One in another server's shape may have that server's status, and
    has code and place in headers; they are added to it."""
    assert len(response.content) < 3000
    document = response.json()
    if "Problem-Code" in response.headers:
        assert response.status_code in (status, *OTHERS_STATUSES.get(status, ())), response.text
        assert response.headers["content-type"] == "application/json"
        document["code"] = response.headers["Problem-Code"]
        if place := unquote(response.headers.get("Problem-Pointer", "")):
            document["errors"] = [{"pointer": place}]
    else:
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
    assert code in ("", document["code"]), document
    return document


def wait_for_job(client, job_id, *states, seconds=300):
    """The job, once it is in one of `states`: by default, once it has ended."""
    wanted = states or ("live", "succeeded", "failed", "cancelled")
    start = time.monotonic()
    while True:
        response = client.get(f"/jobs/{job_id}")
        assert response.status_code == 200, response.text
        job = response.json()
        if job["state"] in wanted:
            return job
        waited = time.monotonic() - start
        assert waited < seconds, job
        # A look takes milliseconds of a processor that the job needs.
        time.sleep(min(max(0.02, waited / 20), 0.25))


def pointer(document):
    """The first place that the document of an error names."""
    return document["errors"][0]["pointer"]


def refusal(client, path, /, **body):
    """The code of a 422, and the first place that it names, if any."""
    document = problem(client.post(path, content=json.dumps(body), headers=JSON), 422)
    return document["code"], pointer(document) if "errors" in document else ""


def metrics(client, *names):
    """The value of each metric of the tokenizer."""
    text = client.get("/metrics").text
    return [float(text.split(f"\ntokenizer_{name} ")[1].split()[0]) for name in names]
