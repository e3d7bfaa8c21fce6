block.u 0 L3 [] -> {
      b0      = bclear                                        // delay=1
      b0      = bssy b0 pT L0                                 // delay=1
                bsync b0 pT                                   // delay=1 yld
                nop L0                                        // delay=1
      ur0     = s2r sr[0x25]                                  // delay=1 wr:0
      ur1     = ldc.b32 c[0x0][+0x0]                          // delay=2 wr:1
      ur0     = iadd3 ur0 ur1 rZ                              // delay=2 wt=000011
      r1      = s2r sr[0x21]                                  // delay=1 wr:0
      ur1     = mov 0xffffffff                                // delay=1
      b0      = bclear                                        // delay=1
      b0      = bssy b0 pT L1                                 // delay=1
      r2      = mov ur1                                       // delay=1
      r3      = mov ur1                                       // delay=1
      r4      = mov rZ                                        // delay=1
      r5      = mov r1                                        // delay=1 wt=000001
} -> [1]
block 1 L2 [0, 31] -> {
      b1      = bclear                                        // delay=1
      b1      = bssy b1 pT L4                                 // delay=1
      p0      = isetp.eq.i32 r3 rZ                            // delay=4
      r6      = sel !p0 rZ 0x1                                // delay=1
      p0      = isetp.ge.u32 r5 0x1000                        // delay=11
      r6      = iadd3 r2 -r6 rZ                               // delay=1
      r7      = iadd3 r3 0xffffffff rZ                        // delay=1
@!p0            bra pT L8                                     // delay=1
} -> [2, 3]
block 2 L7 [1] -> {
      r0      = mov 0x1                                       // delay=1
      r9      = mov r5                                        // delay=1
      r6      = mov r4                                        // delay=1
      r8      = mov r4                                        // delay=1
      r21     = mov r0                                        // delay=1
      r7      = mov r3                                        // delay=1
      r0      = mov r6                                        // delay=1
      r6      = mov r2                                        // delay=1
      r2      = mov r21                                       // delay=1
                bra pT L6                                     // delay=1
} -> [6]
block 3 L8 [1] -> {
      r8      = mov ur0                                       // delay=4
      r8      = lea r8 12 r5                                  // delay=4
      r8      = shf.l.w.i32 r8 rZ 0x2                         // delay=4
      r10 p0  = iadd3 r8 c[0x1][0x20] rZ                      // delay=4
      r11     = iadd3.x rZ c[0x1][0x24] rZ p0 pF              // delay=1
      r12 p0  = iadd3 r8 c[0x1][0x30] rZ                      // delay=4
      r13     = iadd3.x rZ c[0x1][0x34] rZ p0 pF              // delay=4
      r9      = ld.global.a64.strong.gpu.b32 [r10..12+rZ], pT // delay=1 wr:0
      r8      = ld.global.a64.constant.b32 [r12..14+rZ], pT   // delay=2 wr:1
      r8      = fadd.ftz r9 r8                                // delay=5 wt=000011
                st.global.a64.strong.gpu.b32 [r10..12+rZ] r8  // delay=2 rd:0
      r10     = imnmx.u32 r7 r6 pF                            // delay=4 wt=000001
      p0      = isetp.eq.i32 r10 rZ                           // delay=11
      r8      = ffma.ftz r8 r8 r4                             // delay=1
      r9      = iadd3 r5 0x40 rZ                              // delay=1
@!p0            bra pT L11                                    // delay=1
} -> [4, 5]
block 4 L10 [3] -> {
      r0      = mov 0x1                                       // delay=1
      r9      = mov r5                                        // delay=1
      r7      = mov r3                                        // delay=1
      r6      = mov r2                                        // delay=1
      r2      = mov r0                                        // delay=1
      r0      = mov r8                                        // delay=1
      r8      = mov r4                                        // delay=1
                bra pT L6                                     // delay=1
} -> [6]
block 5 L11 [3] -> {
      r2      = mov 0xffffffff                                // delay=2
} -> [6]
block 6 L6 [2, 4, 5] -> {
                bsync b1 pT                                   // delay=1 yld
                nop L4                                        // delay=1
      p0      = isetp.lt.u32 r2 0x2                           // delay=13
@!p0            bra pT L12                                    // delay=1
} -> [31]
block 31 L12 [6] -> {
      r5      = mov r9                                        // delay=1
      r4      = mov r8                                        // delay=1
      r3      = mov r7                                        // delay=1
      r2      = mov r6                                        // delay=1
                bra pT L2                                     // delay=1
} -> [1]
