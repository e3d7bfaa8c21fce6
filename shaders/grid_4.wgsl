// grid_4: entries of 4 bytes in the codebook, which follows the planes.
override BOOK: u32 = 0u;

fn entries(at: vec2<u32>) -> vec2<u32> { return vec2(words[BOOK + at.x], words[BOOK + at.y]); }
