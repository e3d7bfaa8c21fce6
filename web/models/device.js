// What this device can hold, and the small models that are known to run.

// Python, kernels, activations, loading: e2e/large_model.py peaks at 1,025 MB with 599 MB of weights.
const WORKING_BYTES = 426e6;
const MOST_CONTEXT = 4096; // the default of `load`
const SHARE = { fits: 0.5, tight: 0.8 }; // of the device's memory; the system and other tabs need the rest
const MEMORY_CAP = 8; // GiB; older browsers tell no more

/**
 * Known models: name, hub id, bytes of the file, bytes of the KV cache for each token of context (f32), the
 * longest context.
 */
export const KNOWN = [
  known("SmolLM2 135M", "bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M", 105454432, 46080, 8192),
  known("SmolLM2 360M", "bartowski/SmolLM2-360M-Instruct-GGUF:Q4_K_M", 270590880, 81920, 8192),
  known("Qwen2.5 0.5B", "Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M", 491400032, 24576, 32768),
  known("Qwen3 0.6B", "Qwen/Qwen3-0.6B-GGUF:Q8_0", 639446688, 229376, 40960),
  known("Llama 3.2 1B", "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", 807694464, 65536, 131072),
  known("Qwen2.5 1.5B", "Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M", 1117320736, 57344, 32768),
];

/**
 * Facts of this device: memory in bytes (null if unknown; `isMost` if it may have more), and the largest
 * WebGPU buffer in bytes (null without WebGPU).
 * @returns {Promise<{memory: number | null, isMost: boolean, buffer: number | null}>}
 */
export async function deviceFacts() {
  const gib = navigator.deviceMemory ?? null;
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  const memory = gib && gib * 2 ** 30;
  return { memory, isMost: gib >= MEMORY_CAP, buffer: adapter?.limits.maxBufferSize ?? null };
}

function known(name, id, bytes, perToken, context) {
  return { name, id, bytes, perToken, context };
}

/** Bytes of memory that a known model needs, and the context at which it does. */
export function needOf({ bytes, perToken, context }) {
  const tokens = Math.min(context, MOST_CONTEXT);
  return { bytes: bytes + perToken * tokens + WORKING_BYTES, context: tokens };
}

/** Whether this device holds so many bytes: "fits", "tight", "large" or "unknown". */
export function verdict(need, { memory, isMost }) {
  if (!memory) return "unknown";
  if (need <= SHARE.fits * memory) return "fits";
  if (need <= SHARE.tight * memory) return "tight";
  return isMost ? "tight" : "large";
}
