// router: ids = the SLOTS largest of score + bias, the largest first, ties to the lowest id; probs = scores
// of these ids, divided by their sum if NORMALIZE, times SCALE, times gain if there is one. GATE 0: score =
// softmax(logits); 1: sigmoid(logits); 2: score = logits, and probs = softmax over the chosen; 3: score =
// logits, and each prob is the softmax of the chosen expert over the experts near it, without earlier
// choices. Without a bias the logits are compared instead of the scores: both have the same order, but f32
// scores tie where they saturate. Experts form GROUPS groups of neighbours; only those of the GROUPS_USED
// groups whose two largest score + bias have the largest sum are compared.  grid: one workgroup per row.
@group(0) @binding(1) var<storage, read_write> ids: array<f32>;
@group(0) @binding(2) var<storage, read_write> probs: array<f32>;
@group(0) @binding(3) var<storage, read_write> logits: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read> gain: array<f32>;

const MAX_EXPERTS: u32 = 1024u;
const LOWEST: f32 = -3.4e38;
const NOBODY: u32 = 0xffffffffu;
const SOFTMAX: u32 = 0u;
const SIGMOID: u32 = 1u;
const TOPK_SOFTMAX: u32 = 2u;
const SPARSEMIXER: u32 = 3u;
const NEAR: f32 = 0.02;
override GATE: u32 = 0u;
override EXPERTS: u32 = 1u;
override SLOTS: u32 = 1u;  // at most 64, one per lane
override GROUPS: u32 = 1u;  // at most 64, one per lane
override GROUPS_USED: u32 = 1u;
override HAS_BIAS: bool = false;
override HAS_GAIN: bool = false;
override NORMALIZE: bool = false;
override SCALE: f32 = 1.0;
override IDS_STRIDE: u32 = 0u;
override IDS_OFFSET: u32 = 0u;
override PROBS_STRIDE: u32 = 0u;
override PROBS_OFFSET: u32 = 0u;
override LOGITS_STRIDE: u32 = 0u;
override LOGITS_OFFSET: u32 = 0u;

struct Best { rank: f32, id: u32 }
var<workgroup> scores: array<f32, MAX_EXPERTS>;
var<workgroup> ranks: array<f32, MAX_EXPERTS>;
var<workgroup> bests: array<Best, LANES>;
var<workgroup> chosen: array<u32, LANES>;
var<workgroup> sums: array<f32, LANES>;

fn better(a: Best, b: Best) -> Best {
  if (b.rank > a.rank || (b.rank == a.rank && b.id < a.id)) { return b; }
  return a;
}

fn best_of_all(lane: u32) -> Best {  // among experts not yet chosen
  var best = Best(LOWEST, NOBODY);
  for (var e = lane; e < EXPERTS; e += LANES) {
    if (ranks[e] > LOWEST) { best = better(best, Best(ranks[e], e)); }
  }
  workgroupBarrier();  // lanes may still read bests from the call before
  bests[lane] = best;
  for (var width = LANES / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (lane < width) { bests[lane] = better(bests[lane], bests[lane + width]); }
  }
  workgroupBarrier();
  return bests[0];
}

// Excludes the experts of all groups but the best; ties of groups go to the lowest.
fn keep_best_groups(lane: u32) {
  let size = EXPERTS / GROUPS;
  let first = lane * size;
  workgroupBarrier();
  if (lane < GROUPS) {
    var best = LOWEST;
    var second = LOWEST;
    for (var e = first; e < first + size; e++) {
      second = max(second, min(best, ranks[e]));
      best = max(best, ranks[e]);
    }
    sums[lane] = select(best + second, best, size == 1u);
  }
  workgroupBarrier();
  if (lane < GROUPS) {
    var n_better = 0u;
    for (var g = 0u; g < GROUPS; g++) {
      if (sums[g] > sums[lane] || (sums[g] == sums[lane] && g < lane)) { n_better++; }
    }
    if (n_better >= GROUPS_USED) {
      for (var e = first; e < first + size; e++) { ranks[e] = LOWEST; }
    }
  }
  workgroupBarrier();
}

// The sum of exp(score - top) over the experts not yet chosen whose score is near the top.
fn near_sum(top: f32, lane: u32) -> f32 {
  var sum = 0.0;
  for (var e = lane; e < EXPERTS; e += LANES) {
    let is_near = ranks[e] > LOWEST && top - scores[e] <= NEAR * max(abs(scores[e]), top);
    sum += select(0.0, exp(scores[e] - top), is_near);
  }
  return workgroup_sum(sum, lane);
}

fn sigmoid(v: f32) -> f32 { return select(1.0 / (1.0 + exp(min(-v, 80.0))), v, is_nan(v)); }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let at = group.x * LOGITS_STRIDE + LOGITS_OFFSET;
  for (var e = lane; e < EXPERTS; e += LANES) {
    scores[e] = logits[at + e];
    ranks[e] = logits[at + e];
  }
  let top = best_of_all(lane).rank;
  if (GATE == SOFTMAX) {
    var sum = 0.0;
    for (var e = lane; e < EXPERTS; e += LANES) { sum += exp(scores[e] - top); }
    let total = workgroup_sum(sum, lane);
    for (var e = lane; e < EXPERTS; e += LANES) { scores[e] = exp(scores[e] - top) / total; }
  }
  if (GATE == SIGMOID) {
    for (var e = lane; e < EXPERTS; e += LANES) { scores[e] = sigmoid(scores[e]); }
  }
  if (HAS_BIAS) {
    for (var e = lane; e < EXPERTS; e += LANES) { ranks[e] = scores[e] + bias[e]; }
  } else if (GROUPS_USED < GROUPS) {
    for (var e = lane; e < EXPERTS; e += LANES) { ranks[e] = scores[e]; }
  }
  if (GROUPS_USED < GROUPS) { keep_best_groups(lane); }
  for (var slot = 0u; slot < SLOTS; slot++) {
    let best = best_of_all(lane);
    let id = min(best.id, EXPERTS - 1u);
    if (lane == 0u) { chosen[slot] = id; }
    if (GATE == SPARSEMIXER) {
      let near = near_sum(best.rank, lane);
      if (lane == 0u) { sums[slot] = 1.0 / near; }
    }
    if (lane == id % LANES) { ranks[id] = LOWEST; }
  }
  workgroupBarrier();
  let is_slot = lane < SLOTS;
  var prob = select(0.0, scores[chosen[min(lane, SLOTS - 1u)]], is_slot);
  if (GATE == SPARSEMIXER) { prob = select(0.0, sums[min(lane, SLOTS - 1u)], is_slot); }
  if (GATE == TOPK_SOFTMAX) {
    // Without a bias the first chosen score is the largest; with a bias any may be.
    var largest = LOWEST;
    for (var slot = 0u; slot < SLOTS; slot++) { largest = max(largest, scores[chosen[slot]]); }
    prob = select(0.0, exp(prob - largest), is_slot);
    prob /= workgroup_sum(prob, lane);
  }
  if (NORMALIZE) { prob /= workgroup_sum(prob, lane); }
  if (is_slot) {
    ids[group.x * IDS_STRIDE + IDS_OFFSET + lane] = f32(chosen[lane]);
    var by = SCALE;
    if (HAS_GAIN) { by *= gain[chosen[lane]]; }
    probs[group.x * PROBS_STRIDE + PROBS_OFFSET + lane] = by * prob;
  }
}
