// linear_add: residual alone.
fn finish(row: u32, quad: u32, sums: vec4<f32>, scale: f32) { add_quad(row, quad, sums, scale); }
