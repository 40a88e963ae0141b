// npm's runpod-sdk, used as its users use it. One JSON line in ({"do": name, "given": {...}}), one out; what the
// SDK prints goes to stderr. Arguments: the folder with node_modules, the base URL, the key.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder, baseUrl, apiKey] = process.argv.slice(2);
console.log = console.error; // before the import: the SDK keeps what console.log was
const found = createRequire(`${folder}/`).resolve("runpod-sdk");
const { default: runpodSdk } = await import(pathToFileURL(found));

const patience = 60_000; // without it the SDK gives an answer 3 s to come
const open = (endpoint, key) => runpodSdk(key ?? apiKey, { baseUrl }).endpoint(endpoint);

const scenarios = {
  run: ({ endpoint, request }) => open(endpoint).run(request, patience),
  runSync: ({ endpoint, request }) => open(endpoint).runSync(request),
  status: ({ endpoint, job, key }) => open(endpoint, key).status(job, patience),
  statusSync: ({ endpoint, job }) => open(endpoint).statusSync(job),
  cancel: ({ endpoint, job }) => open(endpoint).cancel(job, patience),
  health: ({ endpoint }) => open(endpoint).health(patience),
  purgeQueue: ({ endpoint }) => open(endpoint).purgeQueue(patience),
  async stream({ endpoint, job }) {
    const chunks = [];
    for await (const chunk of open(endpoint).stream(job)) chunks.push(chunk);
    return chunks;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  let told;
  try {
    told = { answer: await scenarios[asked.do](asked.given) };
  } catch (error) {
    told = { raised: error.constructor.name, text: error.message, status: error.response?.status };
  }
  process.stdout.write(JSON.stringify(told) + "\n");
}
