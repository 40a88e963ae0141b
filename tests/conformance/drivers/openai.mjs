// npm's openai, used as its users use it: only the base URL and the key are ours. One JSON line in
// ({"do": name, "given": {...}}), one out. Arguments: the folder with node_modules, the base URL, the key.
import { createReadStream } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder, url] = process.argv.slice(2);
const { OpenAI } = await import(pathToFileURL(createRequire(`${folder}/`).resolve("openai")));

const messages = [{ role: "user", content: "hello" }];
// Without an endpoint, at the base URL of all of them.
const base = (endpoint) => (endpoint ? `${url}/${endpoint}` : url.replace(/\/v2$/, ""));
const open = (endpoint, apiKey) =>
  new OpenAI({ baseURL: `${base(endpoint)}/openai/v1`, apiKey, timeout: 60_000 });

const scenarios = {
  async models({ endpoint, key }) {
    return (await open(endpoint, key).models.list()).data.map((model) => model.id);
  },
  async chat({ endpoint, key, model }) {
    const answer = await open(endpoint, key).chat.completions.create({ model, messages });
    return answer.choices[0].message.content;
  },
  async chat_stream({ endpoint, key, model }) {
    const events = await open(endpoint, key).chat.completions.create({ model, messages, stream: true });
    const words = [];
    for await (const event of events) words.push(event.choices[0].delta.content);
    return words;
  },
  async image({ endpoint, key, given }) {
    return (await open(endpoint, key).images.generate(given)).data;
  },
  async image_stream({ endpoint, key, given }) {
    const events = [];
    for await (const event of await open(endpoint, key).images.generate({ ...given, stream: true }))
      events.push(event);
    return events;
  },
  async edit({ endpoint, key, images, given }) {
    const files = images.map((path) => createReadStream(path));
    return (await open(endpoint, key).images.edit({ image: files, ...given })).data;
  },
  async transcription({ endpoint, key, file, given }) {
    return open(endpoint, key).audio.transcriptions.create({ file: createReadStream(file), ...given });
  },
  async file({ endpoint, key, file }) {
    const made = open(endpoint, key).files.create({ file: createReadStream(file), purpose: "user_data" });
    return (await made).filename;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  let told;
  try {
    told = { answer: await scenarios[asked.do](asked.given) };
  } catch (error) {
    told = { raised: error.constructor.name, text: error.message, status: error.status };
  }
  process.stdout.write(JSON.stringify(told) + "\n");
}
