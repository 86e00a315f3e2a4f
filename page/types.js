/* types.js: the shapes that several modules share; checked by tsc, nothing at run time. */

/**
 * A model as /v1/models and /v1/ingot/models list it; the latter members are for administrators.
 * @typedef {{
 *   id: string, state: string, default: boolean, max_input_tokens: number | null, alias_of?: string,
 *   task?: "generate" | "embedding" | "rerank" | null, dimensions?: number,
 *   fits?: "yes" | "instead" | "no" | null, pinned?: boolean, architecture?: string | null,
 *   file?: string, error?: string | null, quantization?: string | null, file_bytes?: number,
 *   weight_bytes?: number, scratch_bytes?: number, active_requests?: number, load_s?: number,
 *   idle_s?: number | null, expires_s?: number | null
 * }} Model
 *
 * @typedef {{
 *   id: string, model: string, endpoint: string, client: string, key: string, state: string,
 *   prompt_tokens: number, prefilled_tokens: number, cached_tokens: number | null,
 *   output_tokens: number, priority: number, age_s: number
 * }} Running
 *
 * @typedef {{
 *   version: string, device: string, draining: boolean,
 *   models: { name: string, state: string, weight_bytes: number }[],
 *   memory: { budget_bytes: number, weight_bytes: number, scratch_bytes: number, arena_bytes: number,
 *     ranks: { weight_bytes: number, scratch_bytes: number }[] },
 *   kvcache: { used_bytes: number, cached_bytes: number, committed_bytes: number },
 *   requests: { active: number, waiting: number, running: number, paused: number }
 * }} Status
 *
 * @typedef {{
 *   at: number, requests: number, refused: number, errors: number, cancelled: number,
 *   prompt_tokens: number, cached_tokens: number, output_tokens: number, decode_ms: number | null,
 *   ttft_ms: (number | null)[], itl_ms: (number | null)[]
 * }} Step
 *
 * @typedef {{ from: number, to: number, step_s: number, data: Step[], total: Partial<Step> }} Stats
 *
 * @typedef {{
 *   row: number, id: string, received_ns: number, request_id: string, model: string,
 *   endpoint: string, client: string, key: string, status: number, finish: string,
 *   cancel_reason: string, error: string, ignored: string, prompt_tokens: number,
 *   cached_tokens: number, output_tokens: number, queue_ms: number | null,
 *   ttft_ms: number | null, total_ms: number | null, decode_ms: number | null, priority: number | null
 * }} Row
 *
 * @typedef {{
 *   id: string, role: string, created: string, note: string, key?: string,
 *   max_concurrent: number | null, requests_per_minute: number | null, tokens_per_minute: number | null,
 *   weight: number, priority: number
 * }} Key
 *
 * What a chat is asked with; "" and null: not sent.
 * @typedef {{
 *   model: string, instructions: string, temperature: string, top_p: string, top_k: string,
 *   min_p: string, repetition_penalty: string, max_output_tokens: string, seed: string,
 *   stop: string, effort: string, tools: string
 * }} Settings
 *
 * A piece of a reply, in the order in which the model wrote them.
 * @typedef {{ kind: "text" | "reasoning" | "call", text: string, name?: string, call_id?: string,
 *   custom?: boolean }} Part
 *
 * @typedef {{ call_id: string, output: string, custom: boolean }} Result
 *
 * @typedef {{ prompt: number, cached: number, output: number, first_ms: number | null,
 *   decode_ms: number | null }} Figures
 *
 * A turn of a chat, which is a tree: an edit or a retry is another child of the same parent.
 * @typedef {{
 *   id: string, parent: string | null, role: "user" | "assistant" | "tool", text: string,
 *   parts: Part[], results: Result[], state: "running" | "done" | "stopped" | "cut" | "failed",
 *   error: string, response: string, model: string, figures: Figures | null, at: number
 * }} Turn
 *
 * @typedef {{
 *   id: string, title: string, updated: number, settings: Settings, turns: Record<string, Turn>,
 *   leaf: string | null
 * }} Chat
 */
export {};
