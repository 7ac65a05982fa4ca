// Questions to the server. Addresses are relative, so that a proxy may serve the page under any path.

let etag = null;
/** How far the server's clock is ahead of this browser's, in ms: countdowns use the server's. */
export let ahead = 0;

/** The state, or null where nothing has changed since the last call. Throws where the server does not answer. */
export async function state() {
  const answer = await fetch("api/state", { headers: etag ? { "If-None-Match": etag } : {}, cache: "no-store" });
  const date = Date.parse(answer.headers.get("Date") ?? "");
  if (date && Math.abs(date - Date.now()) > 2000) ahead = date - Date.now();
  if (answer.status === 304) return null;
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  etag = answer.headers.get("ETag");
  return answer.json();
}

export const now = () => Date.now() + ahead;

/** The answer to a question; an Error with the server's sentence where it has none. */
export async function ask(question, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== null && value !== undefined && value !== "") query.set(name, value);
  const answer = await fetch(`api/${question}?${query}`, { cache: "no-store" });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error ?? `status ${answer.status}`);
  return said;
}
