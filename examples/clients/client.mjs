// A client that keeps to its quota, for Node and for browsers: node client.mjs http://localhost:8080 [how many requests]

const longestWait = 60; // seconds
const idempotent = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);
const now = () => performance.now() / 1000;

// secondsOf returns the seconds of a Retry-After, which may be a date; 0: it says nothing.
const secondsOf = (told) => (/^\d+$/.test(told) ? Number(told) : Math.max(0, (Date.parse(told) - Date.now()) / 1000) || 0);

// Client sends requests to one host.
export class Client {
  constructor(retries = 0.1) {
    this.retries = retries; // how many requests may be sent again, as a share of all
    this.budget = 10; // that are left, 10 at most
    this.next = 0; // when a request may be sent
    this.gap = 0; // from one request to the next
    this.cache = new Map(); // what each URL answered, with an ETag
    this.rejections = 0;
  }

  // request returns {status, headers, body}. A rejection is returned where it may not, or need not, be sent again.
  async request(method, url, { body, headers = {}, signal } = {}) {
    const known = method === "GET" && this.cache.get(url);
    if (known) headers = { ...headers, "If-None-Match": known.headers.get("ETag") };
    this.budget = Math.min(10, this.budget + this.retries);
    for (;;) {
      const turn = Math.max(now(), this.next);
      this.next = turn + this.gap; // requests that are made at the same time have turns, too
      await new Promise((done) => setTimeout(done, Math.min(longestWait, turn - now()) * 1000));
      const response = await fetch(url, { method, body, headers, signal });
      const answer = { status: response.status, headers: response.headers, body: await response.text() };
      const after = this.learn(answer);
      if (answer.status === 304 && known) return { ...known, status: 304 };
      if (answer.status === 200 && method === "GET" && answer.headers.get("ETag")) this.cache.set(url, answer);
      const harmless = idempotent.has(method) || "Idempotency-Key" in headers;
      if (!(after > 0 && after <= longestWait) || !harmless || this.budget < 1) return answer;
      this.budget--;
    }
  }

  // learn takes from an answer when the next request may be sent. It returns the seconds after which a rejected one may be sent again, or 0.
  learn({ status, headers }) {
    this.gap = 0;
    for (const [, left, reset] of (headers.get("RateLimit") ?? "").matchAll(/;r=(\d+);t=(\d+)/g)) {
      this.gap = Math.max(this.gap, reset / Math.max(1, left)); // what is left, spread over the time until more comes
    }
    let after = 0;
    if (status === 429 || status === 503) {
      this.rejections++;
      after = secondsOf(headers.get("Retry-After") ?? "");
    }
    this.next = Math.max(this.next, now() + Math.max(this.gap, after * (1 + Math.random() / 10)));
    return after;
  }

  // order orders once, however often it is sent, and waits for an answer that comes later.
  async order(url, body) {
    const headers = { "Content-Type": "application/json", Prefer: "respond-async", "Idempotency-Key": crypto.randomUUID() };
    let answer = await this.request("POST", url, { body, headers });
    const job = answer.headers.get("Location");
    while (answer.status === 202) answer = await this.request("GET", new URL(job + "/result", url).href, { headers: { Prefer: "wait=30" } }); // it is deferred
    return answer;
  }
}

// play returns what a client has done.
export async function play(base, count) {
  const client = new Client();
  let cached = 0;
  for (let n = 0; n < count; n++) if ((await client.request("GET", base + "/items.json")).status === 304) cached++;
  let said = `${count} answers, ${cached} of them from the cache, ${client.rejections} rejections\n`;
  for (const n of [1, 2]) {
    const { status, body } = await client.order(base + "/orders", `{"ticket": ${n}}`);
    said += `order ${n}: ${status} ${body}\n`;
  }
  return said;
}

if (globalThis.process?.argv[1]?.endsWith("client.mjs")) {
  globalThis.process.stdout.write(await play(process.argv[2], Number(process.argv[3] ?? 30)));
}
