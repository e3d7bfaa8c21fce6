// candidates: ids and logits of a row's 256 largest logits (all if the row has fewer), the largest first,
// ties to the lowest id; then mean and variance of the logits above -inf.  grid: one workgroup per output
// row.
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> candidates: array<u32>;

override V: u32 = 1u;
override LOGITS_STRIDE: u32 = 0u;
override LOGITS_OFFSET: u32 = 0u;

const MOST: u32 = 256u;
const WORDS: u32 = 514u;
const NEGATIVE_INFINITY: u32 = 0xff800000u;

fn is_counted(v: f32) -> bool { return bitcast<u32>(v) != NEGATIVE_INFINITY; }

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x * LOGITS_STRIDE + LOGITS_OFFSET;
  let to = group.x * WORDS;
  var lane_top = vec2<u32>(0u);
  var sum = 0.0;
  var count = 0.0;
  for (var id = lane; id < V; id += LANES) {
    let logit = logits[row + id];
    lane_top = higher(lane_top, place_of(logit, id));
    if (is_counted(logit)) {
      sum += logit;
      count += 1.0;
    }
  }
  let n = max(workgroup_sum(count, lane), 1.0);
  let mean = workgroup_sum(sum, lane) / n;
  var squares = 0.0;
  for (var id = lane; id < V; id += LANES) {
    let off = logits[row + id] - mean;
    if (is_counted(logits[row + id])) { squares += off * off; }
  }
  let variance = workgroup_sum(squares, lane) / n;
  let want = min(MOST, V);
  keep_highest(row, want, lane_top, lane);
  for (var i = lane; i < want; i += LANES) {
    candidates[to + i] = ~sorted[i].y;
    candidates[to + MOST + i] = bitcast<u32>(value_of(sorted[i].x));
  }
  if (lane == 0u) {
    candidates[to + 2u * MOST] = bitcast<u32>(mean);
    candidates[to + 2u * MOST + 1u] = bitcast<u32>(variance);
  }
}
