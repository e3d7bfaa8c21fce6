// repack: copies one plane of a file's blocks, bytes `start` to `start + width` of each, to its place. Two parts
// of a weight may share a word, so words start at zero and each lane adds its bytes with an atomic OR.
// grid: (lanes of words, tiles of 65,535 * 64 words).
@group(0) @binding(0) var<storage, read> task: array<u32>;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> weights: array<atomic<u32>>;

const BLOCKS: u32 = 0u;
const FIRST: u32 = 1u;  // number of the first block in the weight
const BLOCK_BYTES: u32 = 2u;
const START: u32 = 3u;
const WIDTH: u32 = 4u;
const PLANE: u32 = 5u;  // word offset

fn byte_at(i: u32) -> u32 { return (source[i / 4u] >> (8u * (i % 4u))) & 0xffu; }

fn plane_byte(i: u32) -> u32 {  // i: in the plane, from the first block on
  return byte_at(i / task[WIDTH] * task[BLOCK_BYTES] + task[START] + i % task[WIDTH]);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let first = task[FIRST] * task[WIDTH];
  let end = first + task[BLOCKS] * task[WIDTH];
  let word = first / 4u + id.x;
  var bits = 0u;
  for (var i = max(4u * word, first); i < min(4u * word + 4u, end); i++) {
    bits |= plane_byte(i - first) << (8u * (i % 4u));
  }
  if (bits != 0u) { atomicOr(&weights[task[PLANE] + word], bits); }
}
