// sample: id = argmax(logits / temperature + gumbel), ties to the lowest id; temperature 0 is greedy. The id
// goes to the sequence's ring, where the next step finds it, and to the result: id, status, logit,
// log-sum-exp. Noise: Philox4x32-10 (Salmon et al., SC 2011), key = seed, counter = (id, position, choice, 0).
// grid: one workgroup an output row.
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> ring: array<u32>;
@group(0) @binding(3) var<storage, read_write> result: array<u32>;

override V: u32 = 1u;
override LOGITS_STRIDE: u32 = 0u;
override LOGITS_OFFSET: u32 = 0u;
override RING_ROWS: u32 = 128u;
override GROUP: u32 = 0u;

const LANES: u32 = 64u;
const NOT_A_NUMBER: u32 = 1u;
const NOT_ZERO: u32 = 2u;
const LOWEST: f32 = -3.4e38;

struct Best { score: f32, id: u32, top: f32, flags: u32 }
var<workgroup> bests: array<Best, LANES>;
var<workgroup> sums: array<f32, LANES>;

fn mul_high(a: u32, b: u32) -> u32 {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
  let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
  return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
}

fn philox(counter: vec4<u32>, seed: vec2<u32>) -> u32 {
  var c = counter;
  var key = seed;
  for (var round = 0u; round < 10u; round++) {
    let high = vec2<u32>(mul_high(0xD2511F53u, c.x), mul_high(0xCD9E8D57u, c.z));
    c = vec4<u32>(high.y ^ c.y ^ key.x, c.z * 0xCD9E8D57u, high.x ^ c.w ^ key.y, c.x * 0xD2511F53u);
    key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
  }
  return c.x;
}

fn gumbel(id: u32, position: u32, sampling: u32) -> f32 {
  let seed = vec2<u32>(step[sampling + 1u], step[sampling + 2u]);
  let x = philox(vec4<u32>(id, position, step[sampling + 3u], 0u), seed);
  // Near u = 1 float32 rounds u to 1 and log is loose: there -log(u) is the series of d = 1 - u.
  let u = (f32(x >> 8u) + 0.5) * 5.9604644775390625e-8;
  let d = (f32(0xffffffu - (x >> 8u)) + 0.5) * 5.9604644775390625e-8;
  return -log(select(-log(u), d * (1.0 + d * (0.5 + d * (1.0 / 3.0 + d * 0.25))), d < 0.01));
}

fn better(a: Best, b: Best) -> Best {
  var best = a;
  if (b.score > a.score || (b.score == a.score && b.id < a.id)) { best = b; }
  return Best(best.score, best.id, max(a.top, b.top), a.flags | b.flags);
}

fn scan(row: u32, lane: u32, position: u32, sampling: u32) -> Best {
  let temperature = bitcast<f32>(step[sampling]);
  var best = Best(LOWEST, 0xffffffffu, LOWEST, 0u);
  for (var id = lane; id < V; id += LANES) {
    let logit = logits[row + id];
    var score = logit;
    if (temperature > 0.0) { score = logit / temperature + gumbel(id, position, sampling); }
    let flags = select(0u, NOT_A_NUMBER, is_nan(logit)) | select(0u, NOT_ZERO, logit != 0.0);
    best = better(best, Best(score, id, logit, flags));
  }
  return best;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let output = OUTPUTS_AT + 3u * group.x;
  let sequence = step[output + 1u];
  let position = step[output + 2u];
  let sampling = SAMPLING_AT + 14u * step[SEQUENCES_AT + sequence * SEQUENCE_WORDS + 3u];
  let row = group.x * LOGITS_STRIDE + LOGITS_OFFSET;
  bests[lane] = scan(row, lane, position, sampling);
  for (var width = LANES / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) { bests[lane] = better(bests[lane], bests[lane + width]); }
  }
  workgroupBarrier();
  let best = bests[0];
  var sum = 0.0;
  for (var id = lane; id < V; id += LANES) { sum += exp(logits[row + id] - best.top); }
  sums[lane] = sum;
  for (var width = LANES / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) { sums[lane] += sums[lane + width]; }
  }
  workgroupBarrier();
  if (lane != 0u) { return; }
  let id = min(best.id, V - 1u);
  let status = select(select(2u, 0u, (best.flags & NOT_ZERO) != 0u), 1u, (best.flags & NOT_A_NUMBER) != 0u);
  ring[group_at(sequence, GROUP).write * RING_ROWS + position % RING_ROWS] = id;
  result[4u * group.x] = id;
  result[4u * group.x + 1u] = status;
  result[4u * group.x + 2u] = bitcast<u32>(logits[row + id]);
  result[4u * group.x + 3u] = bitcast<u32>(best.top + log(sums[0]));
}
