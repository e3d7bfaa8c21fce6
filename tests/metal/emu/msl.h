/* msl: the part of Metal's language that the kernels use, on a processor. With SPACES, address spaces are clang's, for
 * a check of the text alone. */
#pragma once
#include "runtime.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef half float16_t;

#ifdef SPACES
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#else
#define device
#define constant
#define threadgroup
#endif
#define thread
#define METAL_FUNC inline

/* Constructors are explicit, since Metal's vectors are no structs: `{a, b}` as an argument is an error there. */
template <class T> struct Vector2 {
    T x, y;
    explicit Vector2(T a, T b) : x(a), y(b) {}
};
template <class T> struct Vector3 { T x, y, z; };
template <class T> struct Vector4 {
    T x, y, z, w;
    Vector4() {}
    explicit Vector4(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
#ifdef SPACES
    Vector4(const device Vector4 &v) : x(v.x), y(v.y), z(v.z), w(v.w) {}
    Vector4(const threadgroup Vector4 &v) : x(v.x), y(v.y), z(v.z), w(v.w) {}
    Vector4(const Vector4 &v) : x(v.x), y(v.y), z(v.z), w(v.w) {}
#endif
};
typedef Vector2<float> float2;
typedef Vector4<float> float4;
typedef Vector3<uint> uint3;

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
inline void threadgroup_barrier(mem_flags, int site = __builtin_LINE()) { metal_barrier(site); }
inline void simdgroup_barrier(mem_flags, int site = __builtin_LINE()) { metal_exchange("", 0, site); }

template <class T> T lane_value(const void *slots, uint lane) {
    T value;
    __builtin_memcpy(&value, (const char *)slots + SLOT_BYTES * (lane % SIMD_LANES), sizeof value);
    return value;
}
template <class T> T simd_shuffle_xor(T value, ushort mask, int site = __builtin_LINE()) {
    return lane_value<T>(metal_exchange(&value, sizeof value, site), metal_lane() ^ mask);
}
template <class T> T simd_shuffle(T value, ushort lane, int site = __builtin_LINE()) {
    return lane_value<T>(metal_exchange(&value, sizeof value, site), lane);
}
template <class T> T simd_broadcast(T value, ushort lane, int site = __builtin_LINE()) {
    return simd_shuffle(value, lane, site);
}

template <class To, class From> To as_type(From from) {
    static_assert(sizeof(To) == sizeof(From), "as_type keeps all bits");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

enum memory_order { memory_order_relaxed };
enum class atomic_uint : uint {};
inline uint atomic_fetch_add_explicit(threadgroup atomic_uint *at, uint more, memory_order) {
    const uint before = (uint)*at;
    *at = (atomic_uint)(before + more);
    return before;
}
inline uint atomic_load_explicit(const threadgroup atomic_uint *at, memory_order) { return (uint)*at; }
inline void atomic_store_explicit(threadgroup atomic_uint *at, uint value, memory_order) { *at = (atomic_uint)value; }

namespace metal {
using ::as_type;
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float rint(float x) { return __builtin_rintf(x); }
inline float abs(float x) { return __builtin_fabsf(x); }
namespace precise { inline float sqrt(float x) { return __builtin_sqrtf(x); } }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
inline uint popcount(uint x) { return (uint)__builtin_popcount(x); }
inline uint clz(ulong x) { return x ? (uint)__builtin_clzl(x) : 64; }
inline uint mulhi(uint a, uint b) { return (uint)((ulong)a * b >> 32); }
inline bool isnan(float x) { return x != x; }
}  // namespace metal
using namespace metal;
