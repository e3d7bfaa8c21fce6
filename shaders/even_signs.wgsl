// even_signs: four fields of seven signs each, and an eighth that makes the number of negative signs even.
fn even(signs: vec4<u32>) -> vec4<u32> { return signs | ((countOneBits(signs) & vec4(1u)) << vec4(7u)); }

fn even_signs(word: u32) -> vec4<u32> { return even((vec4(word) >> vec4(0u, 7u, 14u, 21u)) & vec4(127u)); }
