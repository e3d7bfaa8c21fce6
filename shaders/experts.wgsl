// experts: expert of a slot of a row; ids are floats. Joined before matvec; see bias.
@group(0) @binding(6) var<storage, read_write> ids: array<f32>;

override EXPERTS: u32 = 1u;  // of the whole weight
override FIRST_EXPERT: u32 = 0u;  // of this piece of the weight
override PIECE_EXPERTS: u32 = EXPERTS;
override Y_SLOT: u32 = N;  // stride of y between slots
override X_SLOT: u32 = 0u;  // stride of x between slots, in vec4; 0 if all slots share x
override IDS_STRIDE: u32 = 0u;
override IDS_OFFSET: u32 = 0u;

fn expert_of(row: u32, slot: u32) -> u32 {
  return min(u32(ids[row * IDS_STRIDE + IDS_OFFSET + slot]), EXPERTS - 1u);
}
