/* The calls that zero_c.h refuses, for api_test.c. */

#ifndef ZERO_TEST_API_REFUSALS_H
#define ZERO_TEST_API_REFUSALS_H

#include "api_model.h"

/* Calls that are refused; the engine then continues. */
static int misuse(zero_communicator* communicator, void* user) {
    zero_parameter list[2];
    fill_model(list, NULL);
    zero_options options;
    zero_options_init(&options, sizeof options);
    zero_engine* engine = NULL;
    (void)user;
    EXPECT_REFUSED(zero_create(NULL, list, 2, &options, &engine), ZERO_INVALID_ARGUMENT,
                   "communicator is null");
    EXPECT_REFUSED(zero_create(communicator, NULL, 2, &options, &engine), ZERO_INVALID_ARGUMENT,
                   "'parameters' is null");
    EXPECT_REFUSED(zero_create(communicator, list, 2, NULL, &engine), ZERO_INVALID_ARGUMENT,
                   "zero_options_init()");
    EXPECT_REFUSED(zero_create(communicator, list, 2, &options, NULL), ZERO_INVALID_ARGUMENT,
                   "'engine' is null");
    zero_options other = options;
    other.size = sizeof other + 8;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &other, &engine), ZERO_INVALID_ARGUMENT,
                   "a later version");
    other = options;
    other.stage = 4;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &other, &engine), ZERO_INVALID_ARGUMENT,
                   "stage 4");
    other = options;
    other.clip_norm = -1.0F;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &other, &engine), ZERO_INVALID_ARGUMENT,
                   "options.clip_norm");
    other = options;
    other.group_count = 2;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &other, &engine), ZERO_INVALID_ARGUMENT,
                   "options.groups is null");
    other = options;
    other.block = &other;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &other, &engine), ZERO_INVALID_ARGUMENT,
                   "options.block_elements");
    other = options;
    other.block_elements = 8;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &other, &engine), ZERO_INVALID_ARGUMENT,
                   "options.block is null");
    other = options;
    other.schedule = (zero_schedule)3;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &other, &engine), ZERO_INVALID_ARGUMENT,
                   "options.schedule");
    other = options;
    other.groups = &other.group;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &other, &engine), ZERO_INVALID_ARGUMENT,
                   "options.group_count is 0");
    list[1].group = 1;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &options, &engine), ZERO_INVALID_ARGUMENT,
                   "'bias' is in group 1, but the options have 1 group(s)");
    list[1].group = 0;
    list[1].unit_count = 2;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &options, &engine), ZERO_INVALID_ARGUMENT,
                   "no 'units'");
    list[1].unit_count = 0;
    EXPECT(engine == NULL);

    EXPECT(zero_create(communicator, list, 2, &options, &engine) == ZERO_OK);
    EXPECT(!zero_is_broken(engine) && zero_is_broken(NULL));
    EXPECT_REFUSED(zero_step(engine, 0.1), ZERO_OUT_OF_ORDER, "zero_begin_step()");
    EXPECT_REFUSED(zero_next_micro_step(engine), ZERO_OUT_OF_ORDER, "last micro-step");
    EXPECT_REFUSED(zero_begin_step(engine, 0), ZERO_INVALID_ARGUMENT, "at least one");
    EXPECT_REFUSED(zero_release(engine, 0), ZERO_OUT_OF_ORDER, "unit 0 is not open");
    EXPECT_REFUSED(zero_acquire(engine, 2), ZERO_INVALID_ARGUMENT, "2");
    EXPECT(zero_weight(engine, 0, 0) == NULL && strstr(zero_last_error(), "zero_acquire()"));
    EXPECT(zero_gradient(engine, 0, 0) == NULL && strstr(zero_last_error(), "zero_gradients()"));
    EXPECT(zero_acquire(engine, 0) == ZERO_OK);
    EXPECT(zero_weight(engine, 0, 1) == NULL && strstr(zero_last_error(), "bias") != NULL);
    EXPECT(zero_release(engine, 0) == ZERO_OK);
    float few[3];
    EXPECT_REFUSED(zero_get_parameter(engine, 0, few, 3), ZERO_INVALID_ARGUMENT,
                   "'parameter 0' has 700 elements, not 3");
    EXPECT_REFUSED(zero_get_parameter(engine, 2, few, 3), ZERO_INVALID_ARGUMENT, "no parameter 2");
    EXPECT_REFUSED(zero_gather(engine, few, 3), ZERO_INVALID_ARGUMENT, "3");
    EXPECT_REFUSED(zero_gather(engine, NULL, ELEMENTS + 5), ZERO_INVALID_ARGUMENT,
                   "'block' is null");
    EXPECT_REFUSED(zero_save(engine, "", 0), ZERO_INVALID_ARGUMENT, "'directory' is empty");
    EXPECT_REFUSED(zero_load(engine, NULL, NULL), ZERO_INVALID_ARGUMENT, "'directory' is null");
    EXPECT_REFUSED(zero_set_learning_rate_factor(engine, 7, 1.0), ZERO_INVALID_ARGUMENT, "7");
    EXPECT_REFUSED(zero_begin_step(NULL, 1), ZERO_INVALID_ARGUMENT, "engine is null");
    EXPECT_REFUSED(zero_step_with(engine, 0.1, NULL, NULL), ZERO_INVALID_ARGUMENT,
                   "'update' is null");

    Run run;
    memset(&run, 0, sizeof run);
    run.stage = 2;
    int status = take_step(engine, &run, zero_rank(communicator), 0);
    EXPECT(status == 0);
    EXPECT(zero_begin_step(engine, 2) == ZERO_OK);
    EXPECT_REFUSED(zero_step(engine, 0.1), ZERO_OUT_OF_ORDER, "1 micro-steps left");
    EXPECT(zero_cancel_step(engine) == ZERO_OK);
    /* Refused with a unit open; after the remedy the step goes on. */
    float* weights[2];
    float* gradients[2];
    EXPECT_REFUSED(zero_open(engine, 1, weights, gradients), ZERO_OUT_OF_ORDER,
                   "between zero_begin_step() and zero_step()");
    /* A unit that was released by hand: closing it is refused, and reports no gradient. */
    EXPECT(zero_begin_step(engine, 1) == ZERO_OK);
    EXPECT(zero_open(engine, 1, weights, gradients) == ZERO_OK);
    EXPECT(zero_release(engine, 1) == ZERO_OK);
    EXPECT_REFUSED(zero_close(engine, 1), ZERO_OUT_OF_ORDER, "unit 1 is not open");
    EXPECT_REFUSED(zero_step(engine, 0.1), ZERO_OUT_OF_ORDER, "gradients of unit 1 are leased");
    EXPECT(zero_cancel_step(engine) == ZERO_OK);
    EXPECT(zero_begin_step(engine, 2) == ZERO_OK);
    EXPECT(zero_open(engine, 1, weights, gradients) == ZERO_OK);
    gradients[1][0] = 1.0F;
    EXPECT_REFUSED(zero_next_micro_step(engine), ZERO_OUT_OF_ORDER, "gradients of unit 1");
    EXPECT(zero_close(engine, 1) == ZERO_OK);
    EXPECT(zero_next_micro_step(engine) == ZERO_OK);
    EXPECT(zero_open(engine, 1, weights, gradients) == ZERO_OK);
    EXPECT_REFUSED(zero_step(engine, 0.1), ZERO_OUT_OF_ORDER, "zero_close()");
    EXPECT(zero_close(engine, 1) == ZERO_OK);
    EXPECT(zero_open(engine, 0, weights, NULL) == ZERO_OK);
    EXPECT_REFUSED(zero_step(engine, 0.1), ZERO_OUT_OF_ORDER, "unit 0 is open");
    EXPECT(zero_close(engine, 0) == ZERO_OK);
    EXPECT_REFUSED(zero_close(engine, 0), ZERO_OUT_OF_ORDER, "unit 0 is not open");
    EXPECT(zero_step(engine, 0.1) == ZERO_OK);
    uint64_t steps = 0;
    EXPECT(zero_step_count(engine, &steps) == ZERO_OK && steps == 2);
    status = take_step(engine, &run, zero_rank(communicator), 1);
    EXPECT(status == 0);
    zero_report report;
    EXPECT(zero_last_report(engine, &report) == ZERO_OK && report.step_count == 3);
    EXPECT(report.zero_gradients == 0);
    double norm = 0.0;
    EXPECT_REFUSED(zero_last_group_norms(engine, &norm, 1), ZERO_INVALID_ARGUMENT,
                   "the norms of 0 groups, not of 1; set options.group_norms");
    EXPECT_REFUSED(zero_last_group_norms(engine, NULL, 1), ZERO_INVALID_ARGUMENT,
                   "'norms' is null");
    zero_destroy(engine);
    zero_destroy(NULL);
    return 0;
}

#endif
