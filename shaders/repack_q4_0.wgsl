// repack_q4_0: splits file blocks {f16 scale, 16 bytes, low nibbles first} into quants in order and scales.
// grid: one lane per pair of blocks.
const HALVES: u32 = 9u;  // a block is 18 bytes

fn nibbles(word: u32) -> u32 {  // packs the low nibbles of 4 bytes
  return (word & 0xfu) | ((word >> 4u) & 0xf0u) | ((word >> 8u) & 0xf00u) | ((word >> 12u) & 0xf000u);
}

fn repack_block(block: u32) {
  let to = 4u * (task[1] + block);
  for (var unit = 0u; unit < 4u; unit++) {
    let start = block * HALVES + 1u + 4u * (unit % 2u);
    let shift = 4u * (unit / 2u);
    weights[to + unit] = nibbles(word_at(start) >> shift) | (nibbles(word_at(start + 2u) >> shift) << 16u);
  }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let block = 2u * id.x;
  if (block >= task[0]) { return; }
  repack_block(block);
  repack_block(block + 1u);
  let scales = half_at(block * HALVES) | (half_at((block + 1u) * HALVES) << 16u);
  weights[task[2] + (task[1] + block) / 2u] = scales;
}
