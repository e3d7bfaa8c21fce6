// nothing_behind: in place of norm_behind.
const IS_FOLLOWED: bool = false;

fn follow(row: u32, quad: u32, v: vec4<f32>) {}
