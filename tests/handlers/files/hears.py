"""Answers requests of OpenAI clients that have files: says what it was given, in words of their shapes."""

import base64


def handler(job):
    given = job.input["openai_input"]
    if job.input["openai_route"] == "/v1/audio/transcriptions":
        text = f"{_read(job, given['file'])}, {given.get('language', 'in any language')}"
        return text if given.get("response_format") == "text" else {"text": text}
    if job.input["openai_route"] == "/v1/images/edits":
        read = " and ".join(_read(job, url) for url in given["image"])
        return {"created": 1, "data": [{"b64_json": base64.b64encode(read.encode()).decode()}]}
    return {"id": "f", "object": "file", "filename": given["file"].partition("?")[0].rpartition("-")[2]}


def _read(job, url):
    return job.fetch(url).path.read_text()
