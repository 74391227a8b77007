/* Kernels of pebble.
 *
 * Vendor: your kernels and their launches, in the language that your compiler takes.
 *
 * build.py compiles this file on first use and declares its functions once more. Memory is
 * float32, row-major; sizes and strides are in elements. A function returns 0, or a code of the
 * table in memory.py.
 */
#include <math.h>
#include <stdint.h>

#ifdef __cplusplus /* compilers of C++ take this file too: names stay those of C */
#define EXPORT extern "C"
#else
#define EXPORT
#endif

enum { OK = 0, BAD_SIZE = 1 };
enum { MOST_ROWS = 1024 }; /* the bound that operators.py declares */

/* y = x / sqrt(mean(x**2) + eps) * weight, row by row; the rows of x may lie apart. */
EXPORT int pebble_rms_norm(
    const float *x, const float *weight, float *y,
    int64_t rows, int64_t columns, int64_t x_stride, float eps)
{
    if (rows > MOST_ROWS)
        return BAD_SIZE;
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * x_stride;
        float *out = y + row * columns;
        double squares = 0.0;
        for (int64_t i = 0; i < columns; i++)
            squares += (double)in[i] * in[i];
        const double scale = 1.0 / sqrt(squares / (double)columns + eps);
        for (int64_t i = 0; i < columns; i++)
            out[i] = (float)(in[i] * scale * weight[i]);
    }
    return OK;
}

/* y = silu(gate) * up; a row of x is `inner` gates, then as many ups. */
EXPORT int pebble_silu_and_mul(
    const float *x, float *y, int64_t rows, int64_t inner)
{
    for (int64_t row = 0; row < rows; row++) {
        const float *gate = x + row * 2 * inner;
        const float *up = gate + inner;
        float *out = y + row * inner;
        for (int64_t i = 0; i < inner; i++)
            out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
    return OK;
}
