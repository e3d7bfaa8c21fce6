// grid_8: entries of 8 bytes in the codebook, which follows the planes.
override BOOK: u32 = 0u;

fn entry(at: u32) -> vec2<u32> { return vec2(words[BOOK + 2u * at], words[BOOK + 2u * at + 1u]); }
