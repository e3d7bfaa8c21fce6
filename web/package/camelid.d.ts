// Types of the npm package. Names of options and fields are those of Camelid's Python API.

/** A GGUF file: its address, its path (Node.js only), or the file itself. */
export type ModelPart = string | URL | Blob | FileSystemFileHandle;

export type Backend = "auto" | "webgpu" | "cpu";
export type KvType = "f32" | "f16" | "q8_0" | "q4_0" | "two-tier" | "two-tier-q4_0";

export interface Progress {
  /** "model" counts bytes, the others steps. */
  what: "python" | "model" | "stages";
  done: number;
  total: number;
  /** The stage, as a sentence. */
  text?: string;
}

export interface LoadOptions {
  /** "auto", the default: WebGPU if there is a hardware adapter, else the processor. */
  backend?: Backend;
  /** Part of the WebGPU adapter's name; also chooses software adapters. */
  adapter?: string;
  /** Threads of the processor; by default all, where the page is cross-origin isolated. */
  threads?: number;
  /** Input of matrix products: rounded to 8 bits always on the processor, and with "q8" on WebGPU. */
  activations?: "f32" | "q8";
  /** Most tokens of prompt and answer; by default the model's own number, up to 4096. */
  context?: number;
  /** Requests that run at once; later ones wait. Default: 1. */
  parallel?: number;
  kv_type?: KvType;
  /** Most rows of the KV cache of all requests together. */
  kv_rows?: number;
  /** Prompt rows of a step. */
  chunk?: number;
  /** The GGUF file of the model's vision tower (mmproj-*.gguf), with which the model takes images. */
  mmproj?: ModelPart;
  onProgress?: (progress: Progress) => void;
  /**
   * Gets notices: the device was lost and is open again, another tab runs the model no longer. `key` names the
   * text of the latter for a translation.
   */
  onNotice?: (text: string, key?: string) => void;
  /**
   * Tabs of one site that open the same file run it once. A chosen file, a model in parts and one with mmproj are
   * not shared. When the tab that runs the model is closed, another loads it, and a tab that it leaves without an
   * answer for ten seconds loads it itself: calls in progress fail, and sessions are gone.
   */
  shared?: boolean;
  /** Stops loading and frees the worker. */
  signal?: AbortSignal;
  /** worker.js of this version, by its address or as a started worker (Node.js: a started one). */
  worker?: Worker | string | URL;
}

/** Facts of a loaded model. */
export interface ModelInfo {
  model: string;
  backend: string;
  device: string;
  /** The reason for a backend other than WebGPU; else empty. */
  why: string;
  context: number;
  weight_bytes: number;
  has_template: boolean;
  /** True for a model that was loaded with its vision tower. */
  takes_images: boolean;
  /** The backend of the vision tower: the processor where WebGPU lacks its kernels. Empty without a tower. */
  images_on: string;
  /** Of Camelid. */
  version: string;
}

/** Pixels row by row, in RGB or RGBA, whose alpha is left out. An ImageData of a canvas is one. */
export interface RawImage {
  width: number;
  height: number;
  data: Uint8Array | Uint8ClampedArray;
}

/** A file (BMP, GIF, JPEG, PNG, WebP; pages only) or pixels; `messages` of a session have a data URI for either. */
export type Image = Blob | string | RawImage;

export type ContentPart =
  | { type: "text"; text: string }
  | { type: "image"; image: Image }
  /** OpenAI's part; a Blob in place of the data URI is an extension. */
  | { type: "image_url"; image_url: { url: Image; detail?: string } };

export interface Message {
  role: "system" | "developer" | "user" | "assistant" | "tool" | (string & {});
  content?: string | ContentPart[] | null;
  tool_calls?: { id?: string; type?: "function"; function: { name: string; arguments: string } }[];
  tool_call_id?: string;
  [name: string]: unknown;
}

/** Text, token ids, or messages for the model's chat template. */
export type Prompt = string | number[] | Message[];

export type JsonSchema = Record<string, unknown> | boolean;

export interface Tool {
  type: "function";
  function: { name: string; description?: string; parameters?: JsonSchema };
}

/** Options of a request. The model's file may have defaults of its own. */
/** Loaded adapters of a request: a name, several, perhaps with scales, or a scale for each name. */
export type AdapterChoice = string | (string | [string, number])[] | Record<string, number>;

export interface AdapterInfo {
  name: string;
  rank: number;
  bytes: number;
  /** In requests that name it without a scale. */
  scale: number;
  /** In requests that name no adapter; 0 if it does not act. */
  applied: number;
}

export interface RequestOptions {
  signal?: AbortSignal;
  /** "" is none; without it those that were loaded to apply act. */
  adapter?: AdapterChoice;
  max_tokens?: number | null;
  temperature?: number;
  dynatemp_range?: number;
  dynatemp_exponent?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  typical_p?: number;
  top_n_sigma?: number;
  min_keep?: number;
  xtc_probability?: number;
  xtc_threshold?: number;
  repeat_penalty?: number;
  repeat_last_n?: number;
  frequency_penalty?: number;
  presence_penalty?: number;
  dry_multiplier?: number;
  dry_base?: number;
  dry_allowed_length?: number;
  dry_penalty_last_n?: number;
  dry_sequence_breakers?: string[];
  mirostat?: 0 | 1 | 2;
  mirostat_tau?: number;
  mirostat_eta?: number;
  logit_bias?: Record<string, number | false> | [number | string, number | false][];
  /** Names of samplers, in order. */
  order?: string | string[];
  /** The number of likeliest tokens that each event has. */
  logprobs?: number;
  seed?: number;
  /** The text ends before the first of these. */
  stop?: string | string[];
  /** Control tokens written in a text prompt count. */
  special?: boolean;
  ignore_eos?: boolean;
  grammar?: string;
  json_schema?: JsonSchema | string;
  regex?: string;
  choice?: string[];
  response_format?: Record<string, unknown>;
  tools?: Tool[];
  tool_choice?: "auto" | "none" | "required" | { type: "function"; function: { name: string } };
  parallel_tool_calls?: boolean;
  /** Variables of the chat template, such as { enable_thinking: false }. */
  variables?: Record<string, unknown>;
  continue_final_message?: boolean;
  add_generation_prompt?: boolean;
  reasoning_format?: "auto" | "none";
  /** What happens where prompt and answer exceed the context. */
  overflow?: "error" | "stop" | "shift";
  n_keep?: number;
  priority?: number;
  timeout_s?: number | null;
  queue_timeout_s?: number | null;
  cache_prompt?: boolean;
  cache_salt?: string;
  speculate?: "ngram";
  is_atomic?: boolean;
}

export type Part =
  | { kind: "text"; text: string }
  | { kind: "reasoning"; text: string }
  | {
    kind: "tool_call";
    index: number;
    /** Of a call's first part. */
    id?: string;
    name?: string;
    /** The next piece of JSON text. */
    arguments?: string;
    /** Of a call's last part: false if it was cut off. */
    complete?: boolean;
  };

/** One token of an answer, and the text that it completes. */
export interface Event {
  text: string;
  /** null for text that the end of the answer released. */
  token_id: number | null;
  /** Natural logarithm, of the model's distribution before any sampler. */
  logprob: number;
  parts: Part[];
  top_logprobs?: { token_id: number; logprob: number }[];
}

export interface ToolCall {
  id: string;
  name: string;
  /** JSON text of an object, if complete. */
  arguments: string;
  complete: boolean;
}

export type FinishReason = "stop" | "length" | "tool_calls" | "timeout" | "cancelled";

export interface Completion {
  text: string;
  reasoning: string;
  tool_calls: ToolCall[];
  token_ids: number[];
  finish_reason: FinishReason;
  stop_sequence: string | null;
  seed: number;
  /** For `feedback`. */
  id: string;
  usage: { prompt_tokens: number; completion_tokens: number; cached_tokens: number };
  /** Seconds, and tokens per second. */
  timings: {
    queue_s: number;
    ttft_s: number;
    prefill_tps: number;
    decode_tps: number;
    inter_token_s: number;
    total_s: number;
    n_steps: number;
  };
}

/** An answer as it comes. Leaving the loop cancels the request; pausing it pauses the model. */
export class Stream implements AsyncIterable<Event> {
  private constructor();
  /** The whole answer; of a cancelled request, the answer so far. */
  readonly completion: Promise<Completion>;
  cancel(): void;
  [Symbol.asyncIterator](): AsyncGenerator<Event, void, void>;
}

/** A conversation that keeps its rows between turns. */
export class Session {
  private constructor();
  readonly id: string;
  readonly messages: Message[];
  readonly options: RequestOptions;
  /** The reason if rows of a restored session could not be used. */
  readonly note: string;
  /** Oldest messages that no longer fit the context. */
  readonly n_forgotten: number;
  readonly n_tokens: number;
  readonly cached_rows: number;
  stream(text?: string | null, options?: RequestOptions): Stream;
  chat(text?: string | null, options?: RequestOptions): Promise<Completion>;
  setMessages(messages: Message[]): Promise<void>;
  setSystem(system: string | null): Promise<void>;
  setOptions(options: Omit<RequestOptions, "signal">): Promise<void>;
  reset(): Promise<void>;
  /** Reads the state again. Rejects if the session was closed, or its model was loaded again. */
  refresh(): Promise<void>;
  fork(): Promise<Session>;
  save(): Promise<Blob>;
  close(): Promise<void>;
}

export interface SessionOptions extends Omit<RequestOptions, "signal"> {
  system?: string | null;
  messages?: Message[];
}

/** A loaded model. */
export class LLM {
  private constructor();
  readonly info: ModelInfo;
  stream(prompt: Prompt, options?: RequestOptions): Stream;
  chat(messages: Message[], options?: RequestOptions): Promise<Completion>;
  /** Embeddings of texts. Rejects with a RequestError for a model that makes none. */
  embed(
    texts: string[],
    options?: {
      normalize?: boolean;
      dimensions?: number;
      prompt?: string;
      truncate?: boolean;
      adapter?: AdapterChoice;
    },
  ): Promise<number[][]>;
  /** The relevance of each document, 0 to 1. Rejects with a RequestError for a model without a ranking head. */
  rerank(
    query: string,
    documents: string[],
    options?: { normalize?: boolean; truncate?: boolean; adapter?: AdapterChoice },
  ): Promise<number[]>;
  /** Feedback on an answer of this page, or its id; it acts until the page is closed. Resolves to its number. */
  feedback(
    completion: Completion | string,
    rating: 1 | -1,
    options?: { correction?: string },
  ): Promise<number>;
  /** Takes an item of feedback back. */
  forget(item: number): Promise<void>;
  /**
   * Loads a LoRA adapter for a GGUF model: a GGUF file, or PEFT's or mlx-lm's safetensors with `config`, their
   * adapter_config.json. Returns its name.
   */
  loadAdapter(adapter: {
    name: string;
    file?: Blob | FileSystemFileHandle;
    url?: string;
    config?: Blob | FileSystemFileHandle | string;
    scale?: number;
    applies?: boolean;
  }): Promise<string>;
  unloadAdapter(name: string): Promise<void>;
  adapters(): Promise<AdapterInfo[]>;
  tokenize(text: string, options?: { special?: boolean }): Promise<number[]>;
  detokenize(tokenIds: Iterable<number>): Promise<string>;
  /** The bytes of each token, of control tokens too; a character may be split between tokens. */
  tokenBytes(tokenIds: Iterable<number>): Promise<number[][]>;
  count(prompt: Prompt, options?: Omit<RequestOptions, "signal">): Promise<number>;
  session(options?: SessionOptions): Promise<Session>;
  restore(file: ModelPart): Promise<Session>;
  close(): Promise<void>;
}

/** An error of Camelid: `name` is the class in Python, `facts` its facts. */
export class CamelidError extends Error {
  private constructor();
  readonly facts: Record<string, unknown>;
  /** Python's traceback, for a defect of Camelid. */
  readonly detail?: string;
}

/**
 * Loads a model in a worker of its own; an array is a model in parts. Rejects with CamelidError, or with the
 * signal's reason.
 */
export function load(model: ModelPart | ModelPart[], options?: LoadOptions): Promise<LLM>;

export interface ChatCompletionRequest extends Omit<RequestOptions, "signal" | "logprobs"> {
  messages: Message[];
  model?: string;
  stream?: boolean;
  stream_options?: { include_usage?: boolean };
  max_completion_tokens?: number;
  logprobs?: boolean;
  top_logprobs?: number;
  n?: 1;
  user?: string;
}

interface OpenAIToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

interface OpenAILogprob {
  token: string;
  logprob: number;
  bytes: number[];
}

interface OpenAILogprobs {
  content: (OpenAILogprob & { top_logprobs: OpenAILogprob[] })[];
}

interface OpenAIUsage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
}

export interface ChatCompletion {
  id: string;
  object: "chat.completion";
  created: number;
  model: string;
  choices: {
    index: 0;
    message: {
      role: "assistant";
      content: string | null;
      refusal: null;
      reasoning_content?: string;
      tool_calls?: OpenAIToolCall[];
    };
    finish_reason: "stop" | "length" | "tool_calls";
    logprobs: OpenAILogprobs | null;
  }[];
  usage: OpenAIUsage;
}

export interface ChatCompletionChunk {
  id: string;
  object: "chat.completion.chunk";
  created: number;
  model: string;
  choices: {
    index: 0;
    delta: {
      role?: "assistant";
      content?: string;
      reasoning_content?: string;
      tool_calls?: (Partial<OpenAIToolCall> & { index: number })[];
    };
    finish_reason: "stop" | "length" | "tool_calls" | null;
    logprobs: OpenAILogprobs | null;
  }[];
  usage?: OpenAIUsage;
}

export interface OpenAI {
  chat: {
    completions: {
      create(
        body: ChatCompletionRequest & { stream: true },
        options?: { signal?: AbortSignal },
      ): Promise<AsyncIterable<ChatCompletionChunk> & { controller: { abort(): void } }>;
      create(
        body: ChatCompletionRequest & { stream?: false },
        options?: { signal?: AbortSignal },
      ): Promise<ChatCompletion>;
    };
  };
  models: { list(): Promise<{ object: "list"; data: { id: string; object: "model" }[] }> };
}

/** OpenAI's shape over a loaded model. */
export function openai(llm: LLM): OpenAI;
