/* events.js: the WebSocket of what changes.  It is open only while somebody looks. */
import { get, protocols, socketUrl } from "./api.js";

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5000;

export class Feed {
  /**
   * @param {(type: string, data: any) => void} onEvent
   * @param {(text: string) => void} onState  "": it is connected
   */
  constructor(onEvent, onState) {
    this.onEvent = onEvent;
    this.onState = onState;
    this.wanted = false;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.timer = 0;
    this.pause_ms = FIRST_PAUSE_MS;
    document.addEventListener("visibilitychange", () => this.check());
  }

  start() {
    this.wanted = true;
    this.check();
  }

  stop() {
    this.wanted = false;
    this.check();
  }

  check() {
    clearTimeout(this.timer);
    if (!this.wanted || document.hidden) {
      const socket = this.socket;
      this.socket = null;
      socket?.close();
    } else if (!this.socket) this.open();
  }

  open() {
    const socket = new WebSocket(socketUrl("/v1/ingot/events"), protocols());
    this.socket = socket;
    socket.onmessage = (message) => {
      if (this.socket !== socket) return;
      const event = JSON.parse(message.data);
      this.pause_ms = FIRST_PAUSE_MS;
      this.onState("");
      this.onEvent(event.type, event.data);
    };
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.socket = null;
      this.onState("Connection lost, trying again");
      /* a handshake that failed says no status; this asks for a key where one is missing */
      get("/v1/models").catch(() => {});
      this.timer = window.setTimeout(() => this.check(), this.pause_ms);
      this.pause_ms = Math.min(this.pause_ms * 2, LONGEST_PAUSE_MS);
    };
  }
}
