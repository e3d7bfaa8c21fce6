// matvec: WEIGHT_ROWS weight rows times TOKENS token rows a workgroup. LANES lanes share a weight row and each
// sums its own units, so that a sum's order is the same in every entry and for every batch. 16 lanes read
// neighbouring words on a GPU; software adapters pay for every lane at a barrier and get 2.
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weights: array<u32>;

const GROUP_LANES: u32 = 64u;
const MAX_TOKENS: u32 = 8u;
const TILES_X: u32 = 32768u;  // a grid has 65,535 workgroups a dimension; more tiles go to z
override LANES: u32 = 16u;
override WEIGHT_ROWS: u32 = 64u / LANES;
override TOKENS: u32 = 1u;
override ROWS_WORD: u32 = 0u;
override K: u32 = 8u;
override N: u32 = 1u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;

var<workgroup> partial: array<f32, 64u * TOKENS>;

fn partial_sums(weight_row: u32, x_at: u32, tokens: u32, lane: u32) {  // x_at: in vec4, of the first token row
  var sums: array<f32, MAX_TOKENS>;
  for (var unit = lane % LANES; unit < K / 8u; unit += LANES) {
    let w = decode8(weight_row * (K / 8u) + unit);
    for (var t = 0u; t < tokens; t++) {
      let at = x_at + t * (X_STRIDE / 4u) + 2u * unit;
      sums[t] += dot(w[0], x[at]) + dot(w[1], x[at + 1u]);
    }
  }
  for (var t = 0u; t < tokens; t++) { partial[lane * TOKENS + t] = sums[t]; }
}

fn total(slot: u32, t: u32) -> f32 {  // slot: which of the workgroup's weight rows
  var sum = 0.0;
  for (var i = 0u; i < LANES; i++) { sum += partial[(slot * LANES + i) * TOKENS + t]; }
  return sum;
}
