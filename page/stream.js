/* stream.js: the WebSocket of /v1/responses.  It is opened when first needed and again, after a pause,
 * when it was lost; what ran on it has ended then. */
import { get, protocols, socketUrl } from "./api.js";

const LANES = 24; /* a connection may use 32 names */
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5000;

/** @typedef {{ event: (event: any) => void, lost: () => void }} Listener */
/** @typedef {"closed" | "opening" | "open" | "waiting"} State */

const LAST = ["response.completed", "response.incomplete", "response.failed", "error"];

export class Connection {
  /** @param {(state: State) => void} onState */
  constructor(onState) {
    this.onState = onState;
    /** @type {State} */
    this.state = "closed";
    /** @type {WebSocket | null} */
    this.socket = null;
    /**
     * by lane
     * @type {Map<string, Listener>}
     */
    this.running = new Map();
    /** @type {(() => void)[]} */
    this.waiting = [];
    this.pause_ms = FIRST_PAUSE_MS;
    this.timer = 0;
  }

  /** @param {State} state */
  become(state) {
    this.state = state;
    this.onState(state);
  }

  open() {
    if (this.state === "open" || this.state === "opening") return;
    clearTimeout(this.timer);
    this.become("opening");
    const socket = new WebSocket(socketUrl("/v1/responses"), protocols());
    this.socket = socket;
    socket.onopen = () => {
      this.pause_ms = FIRST_PAUSE_MS;
      this.become("open");
      for (const run of this.waiting.splice(0)) run();
    };
    socket.onmessage = (message) => this.receive(JSON.parse(message.data));
    socket.onclose = () => {
      if (this.socket === socket) this.lost();
    };
  }

  /** Drop the connection, as when the key has changed. */
  close() {
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = null;
    this.endAll();
    socket?.close();
    this.become("closed");
  }

  endAll() {
    const ended = [...this.running.values()];
    this.running.clear();
    for (const listener of ended) listener.lost();
  }

  lost() {
    this.socket = null;
    this.endAll();
    this.become("waiting");
    /* a handshake that failed says no status; this asks for a key where one is missing */
    get("/v1/models").catch(() => {});
    this.timer = window.setTimeout(() => this.open(), this.pause_ms);
    this.pause_ms = Math.min(this.pause_ms * 2, LONGEST_PAUSE_MS);
  }

  /** @param {any} event */
  receive(event) {
    const lane = event.stream_id ?? "";
    const listener = this.running.get(lane);
    if (!listener) return;
    if (LAST.includes(event.type)) this.running.delete(lane);
    listener.event(event);
  }

  freeLane() {
    for (let i = 0; i < LANES; i++) if (!this.running.has("page-" + i)) return "page-" + i;
    return "";
  }

  /**
   * Ask for a response; returns its lane, "": too many run.
   * @param {Record<string, unknown>} request @param {Listener} listener
   */
  run(request, listener) {
    const lane = this.freeLane();
    if (!lane) return "";
    this.running.set(lane, listener);
    const send = () => {
      if (this.running.get(lane) === listener)
        this.socket?.send(JSON.stringify({ type: "response.create", stream_id: lane, ...request }));
    };
    if (this.state === "open") send();
    else {
      this.waiting.push(send);
      this.open();
    }
    return lane;
  }

  /** @param {string} lane */
  cancel(lane) {
    if (this.state === "open" && this.running.has(lane))
      this.socket?.send(JSON.stringify({ type: "response.cancel", stream_id: lane }));
  }
}
