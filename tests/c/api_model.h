/* The model of api_test.c, one step of it, and how a rank reports a failure. */

#ifndef ZERO_TEST_API_MODEL_H
#define ZERO_TEST_API_MODEL_H

#include <zero_c.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define RANKS 3
#define ELEMENTS 700

static int failures = 0; /* failures on the main thread; ranks return theirs */

/* Returns from the function of a rank with a number that is not a status. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition,        \
                    zero_last_error());                                                            \
            return 1000 + __LINE__;                                                                \
        }                                                                                          \
    } while (0)
#define EXPECT_REFUSED(call, status, part)                                                         \
    EXPECT((call) == (status) && strstr(zero_last_error(), (part)) != NULL)

static void expect(int line, int holds) {
    if (!holds) {
        ++failures;
        fprintf(stderr, "%s:%d (last error: %s)\n", __FILE__, line, zero_last_error());
    }
}

typedef struct Run {
    int stage;
    zero_dtype dtype;
    zero_optimizer optimizer;
    char const* directory;       /* directory of the checkpoints */
    float weights[ELEMENTS + 5]; /* both parameters at the end, on rank 0 */
    zero_memory memory;
} Run;

static float initial_value(size_t i) {
    return (float)((i * 37U) % 64U) / 64.0F - 0.5F;
}

/* Writes a number as an element of a gradient. All numbers of this test are exact in 16 bits. */
static void put(void* gradient, zero_dtype dtype, size_t i, float value) {
    if (dtype == ZERO_FLOAT) {
        ((float*)gradient)[i] = value;
    } else {
        uint32_t bits;
        uint16_t half;
        memcpy(&bits, &value, sizeof bits);
        if (dtype == ZERO_BFLOAT16) {
            half = (uint16_t)(bits >> 16U);
        } else { /* a normal float16 */
            uint32_t const sign = bits >> 16U & 0x8000U, exponent = (bits >> 23U & 255U) - 112U;
            half = (uint16_t)(value == 0.0F ? 0U : sign | exponent << 10U | (bits >> 13U & 1023U));
        }
        memcpy((char*)gradient + 2 * i, &half, sizeof half);
    }
}

static void fill_model(zero_parameter* list, float* values) {
    memset(list, 0, 2 * sizeof *list);
    list[0].elements = ELEMENTS;
    list[0].data = values;
    list[1].name = "bias";
    list[1].elements = 5;
    list[1].unit = 1;
}

/* The gradient of an element, over 8. */
static int number_of(size_t i, int rank, int step, int micro_step) {
    return (int)((i + (size_t)(rank + step + micro_step)) % 5U) - 2;
}

/* Returns how many elements have gradients that add up to zero over ranks and micro-steps. */
static int64_t zeros_of(int step) {
    int64_t zeros = 0;
    for (size_t index = 0; index < ELEMENTS + 5; ++index) {
        size_t const i = index < ELEMENTS ? index : index - ELEMENTS;
        int sum = 0;
        for (int rank = 0; rank < RANKS; ++rank) {
            sum += number_of(i, rank, step, 0) + number_of(i, rank, step, 1);
        }
        zeros += sum == 0;
    }
    return zeros;
}

static int take_step(zero_engine* engine, Run const* run, int rank, int step) {
    EXPECT(zero_begin_step(engine, 2) == ZERO_OK);
    float scale = 0.0F;
    EXPECT(zero_loss_scale(engine, &scale) == ZERO_OK);
    EXPECT(scale == (run->dtype == ZERO_FLOAT16 ? 64.0F : 1.0F));
    for (int micro_step = 0; micro_step < 2; ++micro_step) {
        if (micro_step != 0) {
            EXPECT(zero_next_micro_step(engine) == ZERO_OK);
        }
        for (size_t unit = 0; unit < 2; ++unit) {
            EXPECT(zero_acquire(engine, unit) == ZERO_OK);
            EXPECT(zero_weight(engine, unit, unit) != NULL);
            EXPECT(zero_release(engine, unit) == ZERO_OK);
        }
        for (size_t unit = 2; unit-- > 0;) {
            EXPECT(zero_acquire(engine, unit) == ZERO_OK);
            EXPECT(zero_gradients(engine, unit, 1) == ZERO_OK);
            void* const gradient = zero_gradient(engine, unit, unit);
            EXPECT(gradient != NULL);
            size_t const elements = unit == 0 ? ELEMENTS : 5;
            for (size_t i = 0; i < elements; ++i) {
                int const number = number_of(i, rank, step, micro_step);
                put(gradient, run->dtype, i, scale * (float)number * 0.125F);
            }
            EXPECT(zero_gradients_ready(engine, unit) == ZERO_OK);
            EXPECT(zero_release(engine, unit) == ZERO_OK);
        }
    }
    EXPECT(zero_step(engine, 0.125) == ZERO_OK);
    return 0;
}

#endif
