/* Functions of <string.h> that the kernels use, for targets without a libc. As builtins, a copy of known
 * small size is a load and a store, any other copy a bulk-memory instruction; a call would cost ten times
 * that. */
#pragma once
#include <stddef.h>

#define memcpy __builtin_memcpy
#define memmove __builtin_memmove
#define memset __builtin_memset
