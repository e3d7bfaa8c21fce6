// halves: two kernels in one dispatch, for halves of an op with weights of different types (backends/webgpu/halves.py).
// The first FIRST_GROUPS workgroups run the kernel of the first half, the others that of the second, whose names begin
// with v_. All lanes of a workgroup take the same way, so that both kernels may have barriers.
// grid: (workgroups of both kernels, tiles of TOKENS t, 1).
override FIRST_GROUPS: u32 = 0u;
override GROUP_SIZE: u32 = 64u;

@compute @workgroup_size(GROUP_SIZE)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  if (group.x < FIRST_GROUPS) {
    first_main(group, lane);
  } else {
    v_main(vec3(group.x - FIRST_GROUPS, group.yz), lane);
  }
}
