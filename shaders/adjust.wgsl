// adjust: logit bias and penalties, in place. Each id is one lane's, which holds what was there before.
const BIASES: u32 = 16u;   // at most
const HISTORY: u32 = 64u;  // positions at most
const TOUCHED: u32 = BIASES + HISTORY;
var<workgroup> touched: array<u32, TOUCHED>;  // ids: of biases, then of the ring, V where there is none
var<workgroup> before: array<f32, TOUCHED>;

struct Penalties { repeat: f32, frequency: f32, presence: f32, last_n: u32, biases: u32, first_bias: u32 }

fn penalties_at(sampling: u32) -> Penalties {
  let repeat = bitcast<f32>(step[sampling + 8u]);
  let frequency = bitcast<f32>(step[sampling + 9u]);
  let presence = bitcast<f32>(step[sampling + 10u]);
  let is_neutral = repeat == 1.0 && frequency == 0.0 && presence == 0.0;
  let last_n = select(min(step[sampling + 11u], HISTORY), 0u, is_neutral);
  return Penalties(repeat, frequency, presence, last_n, min(step[sampling + 12u], BIASES), step[sampling + 13u]);
}

fn note_touched(p: Penalties, ring_at: u32, position: u32, lane: u32) {
  let n = min(p.last_n, position);
  for (var i = lane; i < TOUCHED; i += LANES) {
    touched[i] = V;
    if (i < p.biases) { touched[i] = min(step[BIASES_AT + 2u * (p.first_bias + i)], V); }
    if (i >= BIASES && i - BIASES < n) {
      touched[i] = min(ring[ring_at + (position - 1u - (i - BIASES)) % RING_ROWS], V);
    }
  }
  workgroupBarrier();
}

fn is_own(i: u32) -> bool {  // the first place of a token
  for (var j = 0u; j < i; j++) {
    if (touched[j] == touched[i]) { return false; }
  }
  return touched[i] < V;
}

fn adjusted(v: f32, id: u32, p: Penalties) -> f32 {
  var logit = v;
  for (var i = 0u; i < p.biases; i++) {
    if (touched[i] == id) { logit += bitcast<f32>(step[BIASES_AT + 2u * (p.first_bias + i) + 1u]); }
  }
  var count = 0u;
  for (var i = BIASES; i < TOUCHED; i++) { count += u32(touched[i] == id); }
  if (count == 0u) { return logit; }
  let repeated = select(logit / p.repeat, logit * p.repeat, logit <= 0.0);
  return repeated - (f32(count) * p.frequency + p.presence);
}

fn adjust(row: u32, p: Penalties, lane: u32) {
  for (var i = lane; i < TOUCHED; i += LANES) {
    if (is_own(i)) {
      before[i] = logits[row + touched[i]];
      logits[row + touched[i]] = adjusted(before[i], touched[i], p);
    }
  }
  storageBarrier();
}

fn restore(row: u32, lane: u32) {
  storageBarrier();
  for (var i = lane; i < TOUCHED; i += LANES) {
    if (is_own(i)) { logits[row + touched[i]] = before[i]; }
  }
  storageBarrier();
}
