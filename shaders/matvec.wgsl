// matvec: WEIGHT_ROWS weight rows times TOKENS token rows per workgroup. LANES lanes share a pair of weight
// rows and read x once for both. Each lane sums its own units, so that the order of a sum is equal for every
// op and batch. On a GPU 16 lanes read neighbouring words; software adapters pay for every lane at a barrier
// and use 2.
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weights: array<u32>;

const GROUP_LANES: u32 = 64u;
const MAX_TOKENS: u32 = 8u;
const TILES_X: u32 = 32768u;  // a grid dimension has at most 65,535 workgroups; further tiles use z
override LANES: u32 = 16u;
override PAIRS: u32 = 64u / LANES;  // pairs of weight rows
override WEIGHT_ROWS: u32 = 2u * PAIRS;
override TOKENS: u32 = 1u;
override ROWS_WORD: u32 = 0u;
override K: u32 = 8u;
override N: u32 = 1u;
override X_STRIDE: u32 = 0u;
override X_OFFSET: u32 = 0u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;

var<workgroup> partial: array<f32, 128u * TOKENS>;  // sums of all lanes' first rows, then of the second rows

fn partial_sums(first: u32, second: u32, x_at: u32, tokens: u32, lane: u32) {  // x_at: in vec4
  var sums: array<vec2<f32>, MAX_TOKENS>;
  for (var unit = lane % LANES; unit < K / 8u; unit += LANES) {
    let a = decode8(first * (K / 8u) + unit);
    let b = decode8(second * (K / 8u) + unit);
    for (var t = 0u; t < tokens; t++) {
      let at = x_at + t * (X_STRIDE / 4u) + 2u * unit;
      let low = x[at];
      let high = x[at + 1u];
      sums[t] += vec2(dot(a[0], low) + dot(a[1], high), dot(b[0], low) + dot(b[1], high));
    }
  }
  for (var t = 0u; t < tokens; t++) {
    partial[lane * TOKENS + t] = sums[t].x;
    partial[(GROUP_LANES + lane) * TOKENS + t] = sums[t].y;
  }
}

fn total(slot: u32, t: u32) -> f32 {  // slot: all first rows, then all second rows
  var sum = 0.0;
  for (var i = 0u; i < LANES; i++) { sum += partial[(slot * LANES + i) * TOKENS + t]; }
  return sum;
}
