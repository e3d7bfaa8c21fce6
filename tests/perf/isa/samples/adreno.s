l6:
(jp)add.u r48.x, r48.x, c1.x
mov.u32u32 r48.w, 0xffffffff
mov.u32u32 r49.x, 0xffffffff
shl.b r48.x, r48.x, 12
mov.u32u32 r0.w, 0
mov.u32u32 r1.x, r0.x
mov.u32u32 r1.y, 0
l13:
cmps.s.eq hr50.z, r49.x, 0
cov.u16s32 r49.z, hr50.z
add.u r49.x, r49.x, -1
(nop2) sub.u r48.w, r48.w, r49.z
(nop3) cmps.u.ge p0.y, r1.x, c4.x
(rpt1)nop
br p0.y, #l32
max.u r49.w, r49.x, r48.w
cmps.s.eq up0.y, r49.w, 0
(ss)add.u r1.z, r48.x, r1.x
(nop3) add.u r1.x, (last)r1.x, 64
nop
ldib.b.untyped.1d.u32.1.imm.base0 r1.w, r1.z, 4
isam.v.base0 (u32)(x)r2.x, r1.z, s#0, t#6
(sy)(nop2) add.f r1.w, (last)r1.w, (last)r2.x
(nop2) mad.f32 r1.y, r1.w, r1.w, (last)r1.y
stib.b.untyped.1d.u32.1.imm.base0 r1.w, r1.z, 4
br p0.y, #l32
jump #l13
l32:
(jp)shl.b r2.y, r0.x, 2
fence.r.w
(sy)(ss)cmps.u.lt p0.x, r0.x, 32
bar.g
(sy)(ss)(rpt3)nop
stl.u32 l[r2.y], r1.y, 1
