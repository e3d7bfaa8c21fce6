/* How a weight lies in memory. */
#pragma once

enum {
    FORM_F32,    /* float32 row after row */
    FORM_ROWS,   /* rows in blocks of their type, as in the file */
    FORM_PANELS, /* panels of 16 rows, interleaved for dot products; panels.h has a layout for each type */
};
