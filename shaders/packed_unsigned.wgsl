// packed_unsigned: the second run may be up to 240, 16 times its weights.
fn weights4(word: u32) -> vec4<f32> { return bytes(word); }
