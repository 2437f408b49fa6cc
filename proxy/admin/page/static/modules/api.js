// Questions to the admin port, and changes by token.

const ANSWER_WITHIN_MS = 5_000;

/** A failed request: the text describes what happened. */
export class NoAnswer extends Error {}

/** The JSON document at `api/<path>`. Throws NoAnswer. */
export async function get(path, question = {}) {
  const asked = new URLSearchParams(Object.entries(question).filter(([, value]) => value !== ""));
  return answered(`api/${path}${asked.size ? `?${asked}` : ""}`, {});
}

/** Change something: method, path, JSON body or null, token. Throws NoAnswer. */
export async function change(method, path, body, token) {
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== null) headers["Content-Type"] = "application/json";
  return answered(`api/${path}`, { method, headers, body: body === null ? null : JSON.stringify(body) });
}

async function answered(address, options) {
  let response;
  let text;
  try {
    const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
    response = await fetch(address, { ...options, signal, cache: "no-store", credentials: "same-origin" });
    text = await response.text();
  } catch (error) {
    const slow = error.name === "TimeoutError";
    throw new NoAnswer(slow ? `no answer within ${ANSWER_WITHIN_MS / 1000} s` : "the admin port cannot be reached");
  }
  let document = null;
  try {
    document = text ? JSON.parse(text) : {};
  } catch {
    // Reported below, by the status.
  }
  if (!response.ok) throw new NoAnswer(`${response.status}: ${document?.error ?? (text.trim() || response.statusText)}`);
  if (document === null) throw new NoAnswer("the answer is no JSON; is this the admin port of diskless-proxy?");
  return document;
}
