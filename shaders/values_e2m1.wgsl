// values_e2m1: E2M1 of the OCP microscaling formats, doubled: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives.
const VALUES: vec4<u32> = vec4<u32>(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
