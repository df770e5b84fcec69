/* Training in C that can be stopped and started again: c_resume RANKS DIRECTORY LAST_STEP. It
 * continues from the last checkpoint in the directory, if there is one, on any number of ranks. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zero_c.h>

enum { TERMS = 6, SAMPLES = 12 };

typedef struct {
    char const* directory;
    uint64_t last_step;
} Run;

/* Adds the gradient of sample `s` for y = sum of w[k] x^k, which learns cos(2 x). */
static float learn(float const* w, float* gradient, uint64_t s) {
    float const x = sinf((float)s);
    float power = 1.0F, error = -cosf(2.0F * x);
    for (int k = 0; k < TERMS; ++k, power *= x) error += w[k] * power;
    power = 1.0F;
    for (int k = 0; k < TERMS; ++k, power *= x) gradient[k] += error * power;
    return error * error;
}

static int train(zero_communicator* ranks, void* user) {
    Run const* run = user;
    zero_parameter model = {.name = "weights", .elements = TERMS};
    zero_options options;
    zero_options_init(&options, sizeof options);
    options.reduction = ZERO_SUM; /* the same on any number of ranks that divides the samples */
    zero_engine* engine;
    zero_create(ranks, &model, 1, &options, &engine);
    //[resume
    uint64_t step = 0; /* the next one */
    int has_checkpoint;
    zero_has_checkpoint(run->directory, &has_checkpoint);
    if (has_checkpoint) zero_load(engine, run->directory, &step);
    // resume]
    float loss = 0.0F;
    for (; step < run->last_step; ++step) {
        float *weights, *gradient;
        zero_begin_step(engine, 1);
        zero_open(engine, 0, &weights, &gradient);
        loss = 0.0F;
        for (int s = zero_rank(ranks); s < SAMPLES; s += zero_world(ranks))
            loss += learn(weights, gradient, step * SAMPLES + (uint64_t)s);
        zero_close(engine, 0);
        zero_step(engine, 0.02);
    }
    zero_sum(ranks, &loss, 1);
    //[save
    zero_save(engine, run->directory, step);
    // save]
    if (zero_rank(ranks) == 0)
        printf("step %llu: loss %.4f\n", (unsigned long long)step, loss / SAMPLES);
    zero_destroy(engine);
    return 0;
}

int main(int count, char** arguments) {
    if (count != 4) {
        fprintf(stderr, "usage: c_resume RANKS DIRECTORY LAST_STEP\n");
        return 2;
    }
    Run run = {arguments[2], strtoull(arguments[3], NULL, 10)};
    zero_set_error_handler(zero_exit_on_error);
    return zero_run_ranks(atoi(arguments[1]), 60.0, train, &run);
}
