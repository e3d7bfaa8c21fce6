// glu_within: as glu, with gate and up as columns of one buffer.  grid: (tiles of 64 c, rows).
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> both: array<f32>;

override C: u32 = 1u;
override Y_STRIDE: u32 = 0u;
override Y_OFFSET: u32 = 0u;
override GATE_STRIDE: u32 = 0u;
override GATE_OFFSET: u32 = 0u;
override UP_OFFSET: u32 = 0u;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= C) { return; }
  let at = id.y * GATE_STRIDE + id.x;
  y[id.y * Y_STRIDE + Y_OFFSET + id.x] = gated(both[at + GATE_OFFSET], both[at + UP_OFFSET]);
}
