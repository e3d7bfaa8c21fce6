// packed_unsigned: weights in unsigned bytes; those of the second run are up to 240, 16 times the weight.
fn weights4(word: u32) -> vec4<f32> { return bytes(word); }
