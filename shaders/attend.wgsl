// attend: softmax sums over the keys that a row sees, for `attention` and `attention_part`. Keys are cut at
// multiples of SPLIT; a run of keys is one online softmax over tiles of 64 keys. With a tail, keys from the border on
// are read from the tail, as f16; see plan/tiers.py. A bias [BIAS_ROWS, query heads] is added to the scores by
// distance; its last row serves all larger distances.
@group(0) @binding(2) var<storage, read_write> q: array<f32>;
@group(0) @binding(3) var<storage, read> keys: array<u32>;
@group(0) @binding(4) var<storage, read> values: array<u32>;
@group(0) @binding(6) var<storage, read> tail: array<u32>;  // keys, then values
@group(0) @binding(7) var<storage, read> extra: array<f32>;  // sinks or bias; no op has both

const LANES: u32 = 64u;
const KEYS: u32 = 0u;
const VALUES: u32 = 1u;
override HEADS_PER_KV: u32 = 1u;
override HEAD_DIM: u32 = 64u;  // at most 256, like V_DIM; the widths of keys and values are multiples of 4
override V_HEAD: u32 = 64u;  // floats stored per value
override WIDTH: u32 = 64u;  // floats of a key row: KV heads x HEAD_DIM
override V_WIDTH: u32 = 64u;  // floats of a value row: KV heads x V_HEAD
override SCALE: f32 = 1.0;
override SOFTCAP: f32 = 0.0;
override HAS_BIAS: bool = false;
override BIAS_ROWS: u32 = 1u;
override HAS_TAIL: bool = false;
override TAIL_GROUP: u32 = 0u;
override TAIL_TABLE_AT: u32 = 0u;
override TAIL_TABLE_COLS: u32 = 1u;
override TAIL_VALUES_AT: u32 = 0u;
override TAIL_ROWS: u32 = 256u;
override TAIL_BATCH: u32 = 64u;
override Q_STRIDE: u32 = 0u;
override Q_OFFSET: u32 = 0u;
override SHARES: u32 = LANES / PARTS;  // values processed in parallel
override HAS_SHARED_KEYS: bool = false;

var<workgroup> query: array<vec4<f32>, LANES>;
var<workgroup> scores: array<f32, LANES>;
var<workgroup> products: array<f32, 256>;  // [keys of a tile, 4]
var<workgroup> tops: array<f32, 8>;  // of eight scores each
var<workgroup> places: array<u32, LANES>;  // pool row of each key of the tile
var<workgroup> parts: array<vec4<f32>, LANES>;
var<workgroup> part_sums: array<f32, LANES>;
var<private> top: f32;  // the highest score so far
var<private> weight_sum: f32;  // sum of weights of the lane's share
var<private> out: vec4<f32>;

fn word(tensor: u32, at: u32) -> u32 {
  if (tensor == KEYS) { return keys[at]; }
  return values[at];
}

fn held4(is_tail: bool, tensor: u32, row: u32, i: u32) -> vec4<f32> {
  let width = select(V_WIDTH, WIDTH, tensor == KEYS);
  if (!is_tail) { return stored4(tensor, row, width, i); }
  let at = select(TAIL_VALUES_AT, 0u, tensor == KEYS) + row * (width / 2u) + 2u * i;
  return vec4(unpack2x16float(tail[at]), unpack2x16float(tail[at + 1u]));
}

fn add_product(is_tail: bool, row: u32, kv_head: u32, i: u32, sums: vec4<f32>) -> vec4<f32> {
  return fma(query[i], held4(is_tail, KEYS, row, kv_head * (HEAD_DIM / 4u) + i), sums);
}

fn total(sums: vec4<f32>) -> f32 { return sums.x + sums.y + sums.z + sums.w; }

fn shared_product(is_tail: bool, row: u32, kv_head: u32, share: u32) -> f32 {  // eight values of each 32 of a key
  var sums = vec4<f32>();
  for (var at = 0u; at < HEAD_DIM / 4u; at += 8u) {
    let i = at + 2u * share;
    if (HEAD_DIM % 32u == 0u || i < HEAD_DIM / 4u) { sums = add_product(is_tail, row, kv_head, i, sums); }
    if (HEAD_DIM % 32u == 0u || i + 1u < HEAD_DIM / 4u) { sums = add_product(is_tail, row, kv_head, i + 1u, sums); }
  }
  return total(sums);
}

// Four lanes share a key, so that neighbours read neighbouring values. Products are single floats: a write to one
// component of a vector may write the others.
fn stage_products(is_tail: bool, table: u32, first: u32, n: u32, kv_head: u32, lane: u32) {
  for (var turn = 0u; turn < 4u; turn++) {
    let slot = LANES / 4u * turn + lane / 4u;
    let row = pool_row(table, first + min(slot, n - 1u));
    products[4u * slot + lane % 4u] = shared_product(is_tail, row, kv_head, lane % 4u);
  }
  workgroupBarrier();
}

// A lane has four keys, which share each load of the query: on software adapters, where all lanes load one by one.
fn stage_four_keys(is_tail: bool, table: u32, first: u32, n: u32, kv_head: u32, lane: u32) {
  let slot = 4u * lane;
  if (slot < n) {
    let key = first + min(vec4(slot) + vec4(0u, 1u, 2u, 3u), vec4(n - 1u));
    let rows = vec4(pool_row(table, key.x), pool_row(table, key.y), pool_row(table, key.z), pool_row(table, key.w));
    var a = vec4<f32>();
    var b = vec4<f32>();
    var c = vec4<f32>();
    var d = vec4<f32>();
    for (var i = 0u; i < HEAD_DIM / 4u; i++) {
      a = add_product(is_tail, rows.x, kv_head, i, a);
      b = add_product(is_tail, rows.y, kv_head, i, b);
      c = add_product(is_tail, rows.z, kv_head, i, c);
      d = add_product(is_tail, rows.w, kv_head, i, d);
    }
    products[slot] = total(a);
    products[slot + 1u] = total(b);
    products[slot + 2u] = total(c);
    products[slot + 3u] = total(d);
  }
  workgroupBarrier();
}

fn staged_product(slot: u32) -> f32 {
  if (!HAS_SHARED_KEYS) { return products[slot]; }
  let at = 4u * slot;
  return products[at] + products[at + 1u] + products[at + 2u] + products[at + 3u];
}

fn score(sum: f32, bias: f32) -> f32 {
  if (SOFTCAP > 0.0) { return fma(SOFTCAP, smooth_tanh(sum * SCALE / SOFTCAP), bias); }
  return fma(sum, SCALE, bias);
}

fn top_of_eight(first: u32, n: u32) -> f32 {
  var highest = LOWEST;
  for (var i = first; i < min(first + 8u, n); i++) { highest = max(highest, scores[i]); }
  return highest;
}

// Adds keys [first, end) to the lane's sums; `head` is a query head. Each fma is explicit, as in product.wgsl.
fn attend(is_tail: bool, table: u32, first: u32, end: u32, state_row: u32, head: u32, lane: u32) {
  let kv_head = head / HEADS_PER_KV;
  for (var tile = first; tile < end; tile += LANES) {
    let key = tile + lane;
    let n = min(LANES, end - tile);
    workgroupBarrier();  // the query is loaded; all lanes have read the scores of the last tile
    if (HAS_SHARED_KEYS) {
      stage_products(is_tail, table, tile, n, kv_head, lane);
    } else {
      stage_four_keys(is_tail, table, tile, n, kv_head, lane);
    }
    if (lane < n) {
      places[lane] = pool_row(table, key);
      var bias = 0.0;
      if (HAS_BIAS) { bias = extra[min(state_row - key, BIAS_ROWS - 1u) * HEADS + head]; }
      scores[lane] = score(staged_product(lane), bias);
    }
    workgroupBarrier();
    if (lane < 8u) { tops[lane] = top_of_eight(8u * lane, n); }
    workgroupBarrier();
    var tile_top = top;
    for (var i = 0u; i < 8u; i++) { tile_top = max(tile_top, tops[i]); }
    let fade = exp(top - tile_top);
    top = tile_top;
    var tile_sum = 0.0;
    var tile_out = vec4<f32>();
    if (lane < PARTS * SHARES) {
      for (var i = lane / PARTS; i < n; i += SHARES) {
        let prob = exp(scores[i] - top);
        tile_sum += prob;
        let value = held4(is_tail, VALUES, places[i], kv_head * (V_HEAD / 4u) + lane % PARTS);
        tile_out = fma(vec4(prob), value, tile_out);
      }
    }
    weight_sum = fma(weight_sum, fade, tile_sum);
    out = fma(out, vec4(fade), tile_out);
  }
}

fn first_tail_key(row: Row) -> u32 {
  let next = row.state_row + 1u;
  return (max(next, TAIL_ROWS) - TAIL_ROWS) / TAIL_BATCH * TAIL_BATCH;
}

// The sums over keys [first, end), for lanes below PARTS.
fn run_of(row: Row, state: Group, first: u32, end: u32, head: u32, lane: u32) -> Softmax {
  top = LOWEST;
  weight_sum = 0.0;
  out = vec4<f32>();
  workgroupBarrier();  // lanes may still read the parts of the run before
  let border = select(end, clamp(first_tail_key(row), first, end), HAS_TAIL);
  attend(false, table_of(state), first, border, row.state_row, head, lane);
  if (HAS_TAIL) {
    let recent = group_at(row.sequence, TAIL_GROUP);
    let table = TAIL_TABLE_AT + recent.read * TAIL_TABLE_COLS;
    attend(true, table, max(border, recent.write), end, row.state_row, head, lane);
  }
  parts[lane] = out;
  part_sums[lane] = weight_sum;
  workgroupBarrier();
  if (lane < PARTS) {
    for (var share = 1u; share < SHARES; share++) {
      out += parts[share * PARTS + lane];
      weight_sum += part_sums[share * PARTS + lane];
    }
  }
  return Softmax(top, weight_sum, out);
}

fn load_query(row: u32, head: u32, lane: u32) {
  let at = row * Q_STRIDE + Q_OFFSET + head * HEAD_DIM + 4u * lane;
  if (lane < HEAD_DIM / 4u) { query[lane] = vec4(q[at], q[at + 1u], q[at + 2u], q[at + 3u]); }
}
