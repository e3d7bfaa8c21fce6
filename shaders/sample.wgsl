// sample: applies bias and penalties to a row's logits, then top k, top p and min p; the id is argmax(logit /
// temperature + gumbel), ties to the lowest id; temperature 0 is greedy. The id of a sequence's last output
// is written to the sequence's ring, from which the next step reads it. The result per output is id, status,
// and the logit and log-sum-exp of the unadjusted logits, which are restored afterwards. grid: one workgroup
// per output row.
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> ring: array<u32>;
@group(0) @binding(3) var<storage, read_write> result: array<u32>;

override V: u32 = 1u;
override LOGITS_STRIDE: u32 = 0u;
override LOGITS_OFFSET: u32 = 0u;
override RING_ROWS: u32 = 128u;
override GROUP: u32 = 0u;

const INFINITY: u32 = 0x7f800000u;
const NOT_A_NUMBER: u32 = 1u;  // or +infinity
const NOT_ZERO: u32 = 2u;
const LOWEST: f32 = -3.4e38;
const MOST_TOP_K: u32 = 256u;
const SAMPLING_WORDS: u32 = 14u;  // in the order of plan/step.py
// Noise is in [-2.86, 17.33]: a score below the top by more than the range cannot win.
const HOPELESS: f32 = -20.5;

struct How {
  temperature: f32,
  seed: vec2<u32>,
  choice: u32,
  draw: u32,  // the position that keys the noise
  top_k: u32,
  top_p: f32,
  log_min_p: f32,
}

var<workgroup> flags: atomic<u32>;
var<workgroup> parts: array<vec2<f32>, LANES>;
var<workgroup> weights: array<f32, MOST_TOP_K>;
var<workgroup> enough: f32;

fn how_at(sampling: u32, position: u32) -> How {
  let temperature = bitcast<f32>(step[sampling]);
  let seed = vec2<u32>(step[sampling + 1u], step[sampling + 2u]);
  let draw = position + step[sampling + 4u];
  let top_k = min(step[sampling + 5u], MOST_TOP_K);
  let top_p = bitcast<f32>(step[sampling + 6u]);
  let min_p = bitcast<f32>(step[sampling + 7u]);
  let log_min_p = select(LOWEST, log(min_p), min_p > 0.0);
  return How(temperature, seed, step[sampling + 3u], draw, top_k, top_p, log_min_p);
}

fn small_exp(v: f32) -> f32 { return exp(max(v, -104.0)); }  // for v <= 0

// Joins (largest, sum of exp(logit - largest)) of two parts of a row.
fn joined(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
  let most = max(a.x, b.x);
  return vec2<f32>(most, a.y * small_exp(a.x - most) + b.y * small_exp(b.x - most));
}

struct Scan { lane_top: vec2<u32>, log_sum_exp: f32 }

fn scan(row: u32, lane: u32) -> Scan {
  var part = vec2<f32>(LOWEST, 0.0);
  var top = vec2<u32>(0u);
  var own = 0u;
  for (var id = lane; id < V; id += LANES) {
    let logit = logits[row + id];
    top = higher(top, place_of(logit, id));
    let ratio = small_exp(-abs(logit - part.x));
    part = vec2<f32>(max(part.x, logit), select(part.y + ratio, part.y * ratio + 1.0, logit > part.x));
    let is_broken = is_nan(logit) || bitcast<u32>(logit) == INFINITY;
    own |= select(0u, NOT_A_NUMBER, is_broken) | select(0u, NOT_ZERO, logit != 0.0);
  }
  if (lane == 0u) { atomicStore(&flags, 0u); }  // some drivers do not zero workgroup memory
  workgroupBarrier();
  atomicOr(&flags, own);
  parts[lane] = part;
  for (var width = LANES / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) { parts[lane] = joined(parts[lane], parts[lane + width]); }
  }
  workgroupBarrier();
  return Scan(top, parts[0].x + log(parts[0].y));
}

fn lane_highest(row: u32, lane: u32) -> vec2<u32> {
  var top = vec2<u32>(0u);
  for (var id = lane; id < V; id += LANES) { top = higher(top, place_of(logits[row + id], id)); }
  return top;
}

// Place of an id's score in a draw; `beyond` is the logit minus the largest logit, at most 0.
fn score(beyond: f32, id: u32, how: How) -> vec2<u32> {
  let level = beyond / how.temperature;
  if ((level < HOPELESS) | (beyond < how.log_min_p)) { return vec2<u32>(0u); }
  return place_of(level + gumbel(vec4<u32>(id, how.draw, how.choice, 0u), how.seed), id);
}

// weights[i] = total weight of the sorted ids before i; enough = the weight at which top p is reached.
fn weigh(n: u32, top: f32, top_p: f32, lane: u32) {
  for (var i = lane; i < n; i += LANES) { weights[i] = small_exp(value_of(sorted[i].x) - top); }
  workgroupBarrier();
  if (lane == 0u) {
    var sum = 0.0;
    for (var i = 0u; i < n; i++) {
      let weight = weights[i];
      weights[i] = sum;
      sum += weight;
    }
    enough = select(-LOWEST, top_p * sum, top_p < 1.0);
  }
  workgroupBarrier();
}

// Best score of the lane's ids: among all ids, or among the top k within top p; the first id is always
// within.
fn draw(row: u32, lane_top: vec2<u32>, top: f32, how: How, lane: u32) -> vec2<u32> {
  let is_few = how.top_k > 0u;
  var n = V;
  if (is_few) {
    n = min(how.top_k, V);
    keep_highest(row, n, lane_top, lane);
    weigh(n, top, how.top_p, lane);
  }
  var best = vec2<u32>(0u);
  for (var i = lane; i < n; i += LANES) {
    var id = i;
    if (is_few) {
      if (i > 0u && weights[i] >= enough) { break; }
      id = ~sorted[i].y;
    }
    best = higher(best, score(logits[row + id] - top, id, how));
  }
  return best;
}

fn last_output(output: u32, sequence: u32) -> u32 {  // of the sequence
  var last = output;
  for (var later = output + 1u; later < step[OUTPUTS]; later++) {
    last = select(last, later, step[output_at(later) + 1u] == sequence);
  }
  return last;
}

// Number of ids before `position` in the ring, one of whose places is for the draw at position `newest`.
fn ids_before(position: u32, newest: u32) -> u32 {
  let first = max(newest + 1u, RING_ROWS) - RING_ROWS;
  return max(position, first) - first;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let sequence = step[output_at(group.x) + 1u];
  let position = step[output_at(group.x) + 2u];
  let sampling = step[SAMPLING_AT] + SAMPLING_WORDS * step[sequence_at(sequence) + 3u];
  let row = group.x * LOGITS_STRIDE + LOGITS_OFFSET;
  let ring_at = group_at(sequence, GROUP).write * RING_ROWS;
  let scanned = scan(row, lane);
  var lane_top = scanned.lane_top;
  let last = last_output(group.x, sequence);
  var penalties = penalties_at(sampling);
  penalties.last_n = min(penalties.last_n, ids_before(position, step[output_at(last) + 2u]));
  let adjusts = penalties.last_n + penalties.biases > 0u;
  var own: Own;
  if (adjusts) {
    note_touched(penalties, ring_at, position, lane);
    own = adjust(row, penalties, lane);
    lane_top = lane_highest(row, lane);
  }
  let how = how_at(sampling, position);
  var best = highest(lane_top, lane);
  if (how.temperature > 0.0) {
    best = highest(draw(row, lane_top, value_of(best.x), how, lane), lane);
  }
  if (adjusts) { restore(row, own); }
  if (lane != 0u) { return; }
  let id = min(~best.y, V - 1u);
  let seen = atomicLoad(&flags);
  if (group.x == last) { ring[ring_at + position % RING_ROWS] = id; }
  result[4u * group.x] = id;
  result[4u * group.x + 1u] = select(select(2u, 0u, (seen & NOT_ZERO) != 0u), 1u, (seen & NOT_A_NUMBER) != 0u);
  result[4u * group.x + 2u] = bitcast<u32>(logits[row + id]);
  result[4u * group.x + 3u] = bitcast<u32>(scanned.log_sum_exp);
}
