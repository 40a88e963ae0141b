"""The same call as code that can be copied: curl, Python, JavaScript, and the OpenAI client. Pure.

No sample contains a key: each reads `STOKER_API_KEY` from the environment. Of several addresses Stoker's own
client takes all, and goes from one that is gone to the next; the others get the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stoker.client import pasted


def samples(url: str, endpoint: str, job_input: Mapping[str, Any]) -> dict[str, str]:
    """Returns the call in each language, by the language's name. OpenAI clients have one base URL for all
    endpoints, with the endpoint as the model. `url`: control's address, or several with commas."""
    addresses = [one.removesuffix("/").removesuffix("/v2") for one in pasted.addresses("the address", url)]
    url = addresses[0]
    found = {
        "curl": _curl(url, endpoint, job_input),
        "Python": _python(",".join(addresses), endpoint, job_input),
        "JavaScript": _javascript(url, endpoint, job_input),
    }
    if "prompt" in job_input and "audio" in job_input:
        found["OpenAI"] = _openai_video(url, endpoint, job_input)
    elif "prompt" in job_input and not any(_without(job_input, *_OF_OPENAI).values()):
        found["OpenAI"] = _openai_image(url, endpoint, job_input)
    return found


def _curl(url: str, endpoint: str, job_input: Mapping[str, Any]) -> str:
    body = json.dumps({"input": job_input}, ensure_ascii=False).replace("'", "'\\''")
    return f"""curl {url}/v2/{endpoint}/runsync \\
  -H "Authorization: Bearer $STOKER_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{body}'"""


def _python(url: str, endpoint: str, job_input: Mapping[str, Any]) -> str:
    return f"""from stoker.client import Client

with Client({url!r}) as stoker:  # the key is in STOKER_API_KEY
    job = stoker.run({endpoint!r}, {dict(job_input)!r})
    print(stoker.wait({endpoint!r}, job.id).output)"""


def _javascript(url: str, endpoint: str, job_input: Mapping[str, Any]) -> str:
    return f"""const answer = await fetch({json.dumps(f"{url}/v2/{endpoint}/runsync")}, {{
  method: "POST",
  headers: {{
    Authorization: `Bearer ${{process.env.STOKER_API_KEY}}`,
    "Content-Type": "application/json",
  }},
  body: JSON.stringify({json.dumps({"input": job_input}, ensure_ascii=False)}),
}});
console.log((await answer.json()).output);"""


def _openai_client(url: str) -> str:
    return f"""import os
from openai import OpenAI

client = OpenAI(base_url={f"{url}/openai/v1"!r}, api_key=os.environ["STOKER_API_KEY"])"""


_NAMED = ("prompt", "width", "height", "num_images", "image_format", "image", "images", "mask_image")
_EXTRA = ("seed", "negative_prompt", "num_inference_steps", "guidance", "scheduler", "strength")
_OF_OPENAI = (*_NAMED, *_EXTRA)
"""The inputs that an OpenAI client can send, as arguments and as more of the body."""


def _openai_image(url: str, endpoint: str, job_input: Mapping[str, Any]) -> str:
    size = f"{job_input.get('width', 1024)}x{job_input.get('height', 1024)}"
    rest = {name: job_input[name] for name in _EXTRA if name in job_input}
    if "image_format" in job_input:
        rest = {"output_format": job_input["image_format"], **rest}
    extra = f",\n    extra_body={rest!r}" if rest else ""
    imports, call, files = _files(job_input)
    return f"""{imports}{_openai_client(url)}
made = client.images.{call}(
    model={endpoint!r},
    prompt={job_input["prompt"]!r},{files}
    size={size!r},
    n={job_input.get("num_images", 1)!r}{extra}
)
print(made.data[0].url)"""


def _files(job_input: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns the import, the method and the arguments for the images of an input, which the client sends as
    files."""
    urls = job_input.get("images") or [job_input[name] for name in ("image",) if job_input.get(name)]
    if not urls:
        return "", "generate", ""
    mask = job_input.get("mask_image")
    more = f"\n    mask=urlopen({mask!r}).read()," if mask else ""
    files = f"\n    image=[urlopen(one).read() for one in {urls!r}],{more}"
    return "from urllib.request import urlopen\n", "edit", files


def _openai_video(url: str, endpoint: str, job_input: Mapping[str, Any]) -> str:
    rest = {"input_reference": job_input.get("image"), **_without(job_input, "prompt", "image", "size")}
    return f"""{_openai_client(url)}
video = client.videos.create_and_poll(
    model={endpoint!r},
    prompt={job_input["prompt"]!r},
    size={job_input.get("size", "720p")!r},
    extra_body={rest!r},
)
client.videos.download_content(video.id).write_to_file("video.mp4")"""


def _without(job_input: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in job_input.items() if name not in names}
