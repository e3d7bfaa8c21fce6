// low_rank: y[t, used] += SCALE * sum over i < r of u[i] * B[i], with u[i] = scales[i] * (A[i] @ x[t, used]), of the
// adapter slot of the row's sequence (plan/op_rows_adapters.py). A row without an adapter keeps its bits. Up to three
// sites that are columns of one y share x and the dispatch. Each workgroup computes all of u, which costs less than a
// second dispatch.  grid: (tiles of TILE quads of each site, rows, used experts).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> slots: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> slots_1: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> slots_2: array<vec4<f32>>;

const HEADER: u32 = 4u;  // floats of the rank and its padding, behind the scales
const X: u32 = 3u;  // number of x beside the sites' slots
override HAS_ADAPTERS_1: bool = false;
override HAS_ADAPTERS_2: bool = false;
override IS_OUTPUT: bool = false;  // rows are of outputs, else of tokens
override IS_DEFERRED: bool = false;
override EPS: f32 = 0.0;
override SCALE: f32 = 1.0;
override RANK: u32 = 4u;  // capacity of a slot
override DOTS: u32 = 4u;  // rows of A at once, a power of two
override TILE: u32 = 64u;  // quads of columns of a workgroup
override K: u32 = 4u;
override N: u32 = 4u;
override N_1: u32 = 0u;
override N_2: u32 = 0u;
override SLOT_FLOATS: u32 = 4u;
override SLOT_FLOATS_1: u32 = 0u;
override SLOT_FLOATS_2: u32 = 0u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override Y_1_OFFSET: u32 = 0u;
override Y_2_OFFSET: u32 = 0u;

var<workgroup> partial: array<f32, LANES>;
var<workgroup> u: array<f32, RANK>;

struct Site { number: u32, tile: u32, n: u32, to: u32, slot_floats: u32 }  // to: its first column of y

fn site_of(tile: u32) -> Site {
  let first = tiles_of(N);
  if (tile < first) { return Site(0u, tile, N, Y_OFFSET, SLOT_FLOATS); }
  let second = first + tiles_of(N_1);
  if (tile < second) { return Site(1u, tile - first, N_1, Y_1_OFFSET, SLOT_FLOATS_1); }
  return Site(2u, tile - second, N_2, Y_2_OFFSET, SLOT_FLOATS_2);
}

fn tiles_of(n: u32) -> u32 { return (n + 4u * TILE - 1u) / (4u * TILE); }

fn adapter_of(row: u32) -> u32 {
  var sequence = row_at(row).sequence;
  if (IS_OUTPUT) { sequence = step[output_at(row) + 1u]; }
  return step[sequence_at(sequence) + 2u];
}

fn quad_at(number: u32, i: u32) -> vec4<f32> {
  if (number == X) { return x[i]; }
  if (HAS_ADAPTERS_1 && number == 1u) { return slots_1[i]; }
  if (HAS_ADAPTERS_2 && number == 2u) { return slots_2[i]; }
  return slots[i];
}

fn float_at(number: u32, i: u32) -> f32 { return quad_at(number, i / 4u)[i % 4u]; }

fn four_at(number: u32, at: u32, c: u32, end: u32) -> vec4<f32> {  // columns c .. c + 4 of a row of `end` floats
  if ((at | end) % 4u == 0u) { return quad_at(number, (at + c) / 4u); }
  var v = vec4<f32>();
  for (var i = 0u; i < min(4u, end - c); i++) { v[i] = float_at(number, at + c + i); }
  return v;
}

fn dot_part(number: u32, a_at: u32, x_at: u32, first: u32, step_by: u32) -> f32 {
  var sum = vec4<f32>();
  for (var c = first; c < K; c += step_by) {
    sum = fma(four_at(number, a_at, c, K), four_at(X, x_at, c, K), sum);
  }
  return sum.x + sum.y + sum.z + sum.w;
}

fn inverse_of(x_at: u32, lane: u32) -> f32 {  // of the divisor of a deferred norm
  if (!IS_DEFERRED) { return 1.0; }
  var squares = 0.0;
  for (var c = lane; c < K / 4u; c += LANES) { squares += float_at(X, x_at + K + c); }
  return 1.0 / sqrt(fma(workgroup_sum(squares, lane), 1.0 / f32(K), EPS));
}

fn stage_u(number: u32, at: u32, a_at: u32, x_at: u32, rank: u32, lane: u32) {
  let each = LANES / DOTS;  // lanes of a row of A
  let inverse = inverse_of(x_at, lane);
  for (var first = 0u; first < RANK; first += DOTS) {
    let i = first + lane / each;
    partial[lane] = 0.0;
    if (i < rank) { partial[lane] = dot_part(number, a_at + i * K, x_at, 4u * (lane % each), 4u * each); }
    workgroupBarrier();
    if (lane < DOTS && first + lane < rank) {
      var sum = 0.0;
      for (var l = 0u; l < each; l++) { sum += partial[lane * each + l]; }
      u[first + lane] = float_at(number, at + first + lane) * inverse * sum;
    }
    workgroupBarrier();
  }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let site = site_of(group.x);
  let slot = adapter_of(group.y);
  if (slot == 0u && !IS_FOLLOWED) { return; }
  let at = slot * site.slot_floats;
  let matrix = expert_of(group.y, group.z) * RANK;
  let a_at = at + RANK + HEADER + matrix * K;
  let b_at = at + RANK + HEADER + EXPERTS * RANK * K + matrix * site.n;
  var rank = 0u;
  if (slot != 0u) {
    rank = min(u32(float_at(site.number, at + RANK)), RANK);
    stage_u(site.number, at, a_at, group.y * X_STRIDE + X_OFFSET + 4u * X_SLOT * group.z, rank, lane);
  }
  let to = group.y * Y_STRIDE + site.to + group.z * Y_SLOT;
  let end = min(TILE * (site.tile + 1u), (site.n + 3u) / 4u);
  for (var quad = TILE * site.tile + lane; quad < end; quad += LANES) {
    var sums = vec4<f32>();
    for (var i = 0u; i < rank; i++) {
      sums = fma(vec4(u[i]), four_at(site.number, b_at + i * site.n, 4u * quad, site.n), sums);
    }
    put(group.y, to, quad, min(4u, site.n - 4u * quad), sums, rank > 0u);
  }
}

fn put(row: u32, to: u32, quad: u32, n: u32, sums: vec4<f32>, is_changed: bool) {
  var values = vec4<f32>();
  for (var r = 0u; r < n; r++) {
    let place = to + 4u * quad + r;
    values[r] = y[place];
    if (is_changed) {
      values[r] = fma(SCALE, sums[r], values[r]);
      y[place] = values[r];
    }
  }
  follow(row, quad, values);
}
