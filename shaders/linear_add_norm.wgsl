// linear_add_norm: residual, and z, the deferred norm of y.
fn finish(row: u32, quad: u32, sums: vec4<f32>, scale: f32) { follow(row, quad, add_quad(row, quad, sums, scale)); }
