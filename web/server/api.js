// Calls of the server's API. The key stays in this tab's session storage and goes out as a bearer token.

const KEY = "camelid-api-key";

/** An error of the server. `status` is HTTP's, or 0 where no reply came; `hint` is a way out, if any. */
export class ApiError extends Error {
  constructor(message, status, hint = "") {
    super(message);
    Object.assign(this, { status, hint });
  }
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export const forgetKey = () => sessionStorage.removeItem(KEY);

/** Keeps a key. Throws ApiError for characters that no HTTP header can carry. */
export function setKey(key) {
  if (!/^[\x21-\x7e]+$/.test(key)) throw new ApiError("A key has no spaces or special letters.", 0);
  sessionStorage.setItem(KEY, key);
}

/** The JSON reply of a GET request. */
export async function getJson(path) {
  const response = await call(path, {});
  return response.json();
}

/** The objects of a streamed chat completion. Aborting `signal` closes the connection, which ends it. */
export async function* streamChat(body, signal) {
  const response = await call("v1/chat/completions", {
    method: "POST",
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message, chunk.error.code);
    yield chunk;
  }
  throw new ApiError("The connection ended before the answer did.", 0);
}

async function call(path, options) {
  const headers = { "content-type": "application/json" };
  if (hasKey()) headers.authorization = `Bearer ${sessionStorage.getItem(KEY)}`;
  const response = await fetch(path, { ...options, headers, cache: "no-store" }).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer.", 0);
  });
  if (!response.ok) throw await refusal(response);
  return response;
}

/** The error of a reply: the server's own sentence, and when to try again. */
async function refusal(response) {
  const text = await response.text();
  const seconds = response.headers.get("retry-after");
  const hint = seconds ? `Try again in ${seconds} s.` : "";
  return new ApiError(message(text) ?? `The server answered ${response.status}.`, response.status, hint);
}

function message(text) {
  try {
    return JSON.parse(text).error.message;
  } catch {
    return undefined;
  }
}

/** The data of server-sent events; comments are left out. */
async function* eventData(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      const data = /^data: ?(.*)$/m.exec(frame);
      if (data) yield data[1];
    }
  }
}
