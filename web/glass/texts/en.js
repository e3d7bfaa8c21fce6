// English.

export default {
  "title": "Glass box",
  "close": "Close",
  "copy": "Copy report",
  "copied": "Copied",
  "copy.refused": "The browser refused; select the text instead",
  "refresh": "Refresh",
  "measuring": "Measuring…",
  "plan": "Plan",
  "times": "Time",
  "cache": "KV cache",
  "tokens": "Tokens",
  "parity": "Parity",
  "race": "Race",
  "entry": "Program",
  "entry.decode": "Decode: one row",
  "entry.mixed": "Prefill: a chunk of rows",
  "plan.summary": "{ops} ops, {dispatches} dispatches, {bytes} and {flops} MFLOP in a step of {rows} rows.",
  "number": "No.",
  "op": "Op",
  "shapes": "Shapes",
  "weights": "Weights",
  "bytes": "Bytes",
  "dispatches": "Dispatches",
  "source": "Op {number}: {op}",
  "source.compiled": "A kernel of the WebAssembly module, without WGSL.",
  "times.held": "Cached rows",
  "times.measure": "Measure",
  "times.about":
    "Each op of a decode step, alone and repeated. Repeated ops find small weights and the " +
    "rows of the KV cache in the device's caches.",
  "times.summary": "{time} and {bytes} in all ops, {rate} GB/s.",
  "times.timestamps": "Clock: timestamp queries of the device, which the browser rounds; {repeats} repeats.",
  "times.submissions": "Clock: repeated submissions, without timestamp queries; {repeats} repeats.",
  "time": "Time",
  "gbps": "GB/s",
  "alike": "Equal ops",
  "group": "Group",
  "kv_type": "Type",
  "page": "Page",
  "held": "held",
  "shared": "shared",
  "cached": "cached",
  "free": "free",
  "total": "Total",
  "cache.summary": "{bytes} of state; {evicted} pages evicted so far.",
  "cache.session": "Conversation: {rows} rows in {pages} pages of the prefix cache.",
  "tokens.about":
    "The last question once more, with the probability of each token before any sampler. Choose a " +
    "token for its alternatives.",
  "tokens.none": "The conversation has no question yet.",
  "tokens.run": "Answer with candidates",
  "tokens.at": "Instead of {token} ({probability})",
  "token": "Token",
  "id": "Id",
  "probability": "Probability",
  "parity.about":
    "Runs the kernels on this device and compares them with results of the reference backend, as " +
    "camelid doctor does.",
  "parity.run": "Check this device",
  "parity.absent": "This site was built without parity.json; build it with NumPy installed.",
  "parity.summary": "{passed} passed, {failed} failed, {refused} without a kernel.",
  "passed": "passed",
  "failed": "failed",
  "refused": "no kernel",
  "case": "Case",
  "status": "Status",
  "nmse": "NMSE",
  "allowed": "Allowed",
  "race.about":
    "Camelid and wllama (llama.cpp) with the same file and the same prompt, greedy, in turns. wllama " +
    "runs on the processor.",
  "race.prompt": "Prompt tokens",
  "race.tokens": "Answer tokens",
  "race.run": "Start",
  "race.loading": "wllama loads the model…",
  "race.round": "Round {round} of {rounds}…",
  "race.absent":
    "This site was built without wllama. Run npm ci, then python web/build.py, which takes it from " +
    "node_modules.",
  "race.fetch": "The model's file {address} cannot be fetched for wllama: the server answered {status}.",
  "race.frame":
    "wllama's frame does not answer: its script could not be loaded. Reload the page and try again.",
  "race.slow": "wllama has not loaded the model within {seconds} s. Reload the page and try again.",
  "race.sizes": "Prompt and answer need at least 1 and 2 tokens, and together at most {context}.",
  "race.unequal":
    "Unequal work: Camelid read {prompt} and made {n} tokens, wllama read {prompt2} and made " +
    "{n2}.",
  "race.summary":
    "Camelid is {prefill}× wllama in prefill and {decode}× in decode; medians of {rounds} " +
    "rounds.",
  "side": "Side",
  "prefill": "Prefill tok/s",
  "decode": "Decode tok/s",
};
