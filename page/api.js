/* api.js: requests to the daemon.  The key is in this module's memory and nowhere else: a reload of the
 * page forgets it. */

/** @type {string} */
let key = "";
/** @type {() => void} */
let onSignIn = () => {};

export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** @param {string} value */
export function setKey(value) {
  key = value;
}

/**
 * fn is called when the daemon wants a key.
 * @param {() => void} fn
 */
export function whenKeyIsWanted(fn) {
  onSignIn = fn;
}

/** The subprotocols of a WebSocket, which has no headers for a key. */
export function protocols() {
  return key ? ["ingot", "ingot-key." + key] : ["ingot"];
}

/** @param {string} path */
export function socketUrl(path) {
  return (location.protocol === "https:" ? "wss://" : "ws://") + location.host + path;
}

/** @param {Response} response @returns {Promise<ApiError>} */
async function errorOf(response) {
  let code = "";
  let message = `the daemon answered with status ${response.status}`;
  try {
    const error = (await response.json()).error;
    if (typeof error === "string") message = error;
    else if (error) {
      code = error.code ?? "";
      message = error.message ?? message;
    }
  } catch {
    /* not JSON: the status says it */
  }
  return new ApiError(response.status, code, message);
}

/**
 * @param {string} method @param {string} path @param {unknown} [body]
 * @returns {Promise<Response>}
 */
export async function request(method, path, body) {
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json" };
  if (key) headers.authorization = "Bearer " + key;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers, cache: "no-store", credentials: "omit",
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, "unreachable", "The daemon cannot be reached.");
  }
  if (response.ok) return response;
  const error = await errorOf(response);
  if (error.status === 401) onSignIn();
  throw error;
}

/** @param {string} path @returns {Promise<any>} */
export async function get(path) {
  return (await request("GET", path)).json();
}

/** @param {string} path @param {unknown} body @returns {Promise<any>} */
export async function post(path, body) {
  return (await request("POST", path, body)).json();
}

/** @param {string} path @returns {Promise<any>} */
export async function remove(path) {
  return (await request("DELETE", path)).json();
}

/**
 * The objects of a reply that is a line of JSON each.
 * @param {string} path @param {unknown} body @param {(object: any) => void} take
 */
export async function lines(path, body, take) {
  const response = await request("POST", path, body);
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += value ?? "";
    const whole = rest.split("\n");
    rest = whole.pop() ?? "";
    for (const line of whole) if (line) take(JSON.parse(line));
    if (done) return;
  }
}

/** @param {unknown} error */
export function textOf(error) {
  return error instanceof Error ? error.message : String(error);
}
