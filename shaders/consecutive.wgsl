// consecutive: quads of four consecutive rows of a weight.
fn n_quads() -> u32 { return (N + 3u) / 4u; }

fn quad_rows(quad: u32) -> vec4<u32> { return min(vec4(4u * quad) + vec4(0u, 1u, 2u, 3u), vec4(N - 1u)); }
