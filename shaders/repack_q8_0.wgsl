// repack_q8_0: splits file blocks {f16 scale, 32 x i8} into quants and scales.
// grid: one lane per pair of blocks.
const HALVES: u32 = 17u;  // a block is 34 bytes

fn repack_block(block: u32) {
  let to = 8u * (task[1] + block);
  for (var word = 0u; word < 8u; word++) { weights[to + word] = word_at(block * HALVES + 1u + 2u * word); }
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
