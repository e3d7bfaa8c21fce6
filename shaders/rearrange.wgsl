// rearrange: moves each element of a file to its place in the weight. A move keeps `n` elements from `start`
// on, then views the elements as [-1, b, c, d] and swaps b and c. Two 16-bit elements share a word; words
// start at zero, and each half is added with an atomic OR. At its place, an element is multiplied by the factor of its
// run of rows. With picked rows, it goes to each place of its row among them.  grid: one lane per element of the
// staged bytes.
@group(0) @binding(0) var<storage, read> task: array<u32>;  // header; start, n, b, c, d per move; runs, columns of
                                                            // a row; end row and factor per run; picked
                                                            // rows, numbers of a row; each row's number
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> weights: array<atomic<u32>>;

const ELEMENTS: u32 = 0u;
const FIRST: u32 = 1u;  // index of the first element in the file
const SOURCE_TYPE: u32 = 2u;
const STAYS_16_BIT: u32 = 3u;
const ADDEND: u32 = 4u;
const NEGATES_EXP: u32 = 5u;  // 1: each value v becomes -exp(v)
const MOVES: u32 = 6u;
const F32: u32 = 0u;
const BF16: u32 = 2u;

fn bits_at(i: u32) -> u32 {
  if (task[SOURCE_TYPE] == F32) { return source[i]; }
  return (source[i / 2u] >> (16u * (i % 2u))) & 0xffffu;
}

fn widened(bits: u32) -> u32 {
  if (task[SOURCE_TYPE] == F32) { return bits; }
  if (task[SOURCE_TYPE] == BF16) { return bits << 16u; }
  return bitcast<u32>(unpack2x16float(bits).x);
}

fn swapped(at: u32, b: u32, c: u32, d: u32) -> u32 {
  let rest = at / d;
  return ((rest / (b * c) * c + rest % c) * b + rest / c % b) * d + at % d;
}

fn factor_of(row: u32, runs: u32) -> f32 {  // runs: the place of the runs in the task
  var i = 0u;
  while (i + 1u < task[runs] && row >= task[runs + 2u + 2u * i]) { i++; }
  return bitcast<f32>(task[runs + 3u + 2u * i]);
}

fn changed(number: u32, at: u32, runs: u32) -> u32 {
  var bits = number;
  if (task[runs] > 0u) { bits = bitcast<u32>(bitcast<f32>(bits) * factor_of(at / task[runs + 1u], runs)); }
  if (task[ADDEND] != 0u) { bits = bitcast<u32>(bitcast<f32>(bits) + bitcast<f32>(task[ADDEND])); }
  if (task[NEGATES_EXP] == 1u) { bits = bitcast<u32>(-fine_exp(bitcast<f32>(bits))); }
  return bits;
}

fn put(at: u32, bits: u32, runs: u32) {
  if (task[STAYS_16_BIT] == 1u) {
    atomicOr(&weights[at / 2u], bits << (16u * (at % 2u)));
  } else {
    atomicStore(&weights[at], changed(widened(bits), at, runs));
  }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= task[ELEMENTS]) { return; }
  var at = task[FIRST] + id.x;
  for (var i = 0u; i < task[MOVES]; i++) {
    let how = MOVES + 1u + 5u * i;
    at -= task[how];  // a negative result wraps to a large number
    if (at >= task[how + 1u]) { return; }
    at = swapped(at, task[how + 2u], task[how + 3u], task[how + 4u]);
  }
  let runs = MOVES + 1u + 5u * task[MOVES];
  let picked = runs + 2u + 2u * task[runs];
  if (task[picked] == 0u) { put(at, bits_at(id.x), runs); }
  for (var i = 0u; i < task[picked]; i++) {
    let size = task[picked + 1u];
    if (task[picked + 2u + i] == at / size) { put(i * size + at % size, bits_at(id.x), runs); }
  }
}
