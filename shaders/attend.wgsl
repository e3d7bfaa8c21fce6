// attend: softmax sums over keys, for `attention`, `attention_part` and `attend_rows`. A run of keys is one online
// softmax over tiles of 64 keys. Another file defines held4(is_tail, tensor, row, i), four values of a key or value;
// pool_row(table, key), the key's row in its buffer; and bias_of(row, key, head), the addend to a score. Joined last,
// since the size of `query` is an override; see bias.
@group(0) @binding(2) var<storage, read_write> q: array<f32>;

const LANES: u32 = 64u;
const KEYS: u32 = 0u;
const VALUES: u32 = 1u;
override HEADS_PER_KV: u32 = 1u;
override HEAD_DIM: u32 = 64u;  // the widths of keys and values are multiples of 4
override QUERY: u32 = HEAD_DIM / 4u;
override V_HEAD: u32 = 64u;  // floats stored per value
override SCALE: f32 = 1.0;
override SOFTCAP: f32 = 0.0;
override Q_STRIDE: u32 = 0u;
override Q_OFFSET: u32 = 0u;
override SHARES: u32 = LANES / PARTS;  // values processed in parallel
override HAS_SHARED_KEYS: bool = false;

var<workgroup> query: array<vec4<f32>, QUERY>;
var<workgroup> scores: array<f32, LANES>;
var<workgroup> products: array<f32, 256>;  // [keys of a tile, 4]
var<workgroup> tops: array<f32, 8>;  // of eight scores each
var<workgroup> places: array<u32, LANES>;  // pool row of each key of the tile
var<workgroup> parts: array<vec4<f32>, LANES>;
var<workgroup> part_sums: array<f32, LANES>;
var<private> top: f32;  // the highest score so far
var<private> weight_sum: f32;  // sum of weights of the lane's share
var<private> out: vec4<f32>;

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

// Adds keys [first, end) that a row sees to the lane's sums; `side` is a side of a query head. Each fma is explicit, as
// in product.wgsl.
fn attend(is_tail: bool, table: u32, first: u32, end: u32, row: u32, side: u32, lane: u32) {
  let head = side / SIDES;
  let kv_head = head / HEADS_PER_KV;
  let value = kv_head * (V_HEAD / 4u) + side % SIDES * PARTS + lane % PARTS;
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
      scores[lane] = score(staged_product(lane), bias_of(row, key, head));
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
        tile_out = fma(vec4(prob), held4(is_tail, VALUES, places[i], value), tile_out);
      }
    }
    weight_sum = fma(weight_sum, fade, tile_sum);
    out = fma(out, vec4(fade), tile_out);
  }
}

fn begin() {
  top = LOWEST;
  weight_sum = 0.0;
  out = vec4<f32>();
  workgroupBarrier();  // lanes may still read the parts of the run before
}

// The sums of all shares since begin, for lanes below PARTS.
fn sums_of_shares(lane: u32) -> Softmax {
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

fn load_query(row: u32, side: u32, lane: u32) {
  for (var i = lane; i < QUERY; i += LANES) {
    let at = row * Q_STRIDE + Q_OFFSET + side / SIDES * HEAD_DIM + 4u * i;
    query[i] = vec4(q[at], q[at + 1u], q[at + 2u], q[at + 3u]);
  }
}
